"""A warehouse on Azure's Blob interface, as its emulator Azurite has it. Jobs side by side: `test_races.py`."""

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.inspect.config_check import checks
from pipeline.inspect.status import statuses
from sinks.delta.kernel import KernelTable
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.storage.settings import VARIABLE, Storage
from sources.errors import StorageUnreachable
from tests.objectstore.azurite import Azurite, of
from tests.objectstore.twin import Twin
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def twin(spark: SparkSession, azure: Azurite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    warehouse, folder = azure.with_container("twin"), tmp_path_factory.mktemp("twin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, Storage.model_validate(azure.storage()).as_text())
        made = Twin(spark, folder, warehouse, azure.storage(), batches=4)
        made.log.append(random.Random(1), 200)
        reach(spark, placed(warehouse), str(folder))
        replicate_now(spark, made.config())
        yield made


def test_every_byte_is_there_tidied_up_and_continued(twin: Twin) -> None:
    (status,) = statuses(twin.config())
    assert (status.position, status.lag, status.phase) == (twin.log.end, 0, "done")
    twin.assert_equal()
    done = twin.maintain()
    assert done["log", "merge"].files_after == 1 < done["log", "merge"].files_before
    assert done["log", "vacuum"].files_before > done["log", "vacuum"].files_after
    twin.log.append(random.Random(2), 60)
    replicate_now(twin.spark, twin.config())
    twin.assert_equal()


def test_an_endpoint_without_a_listener_is_an_error_soon(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, azure: Azurite, tmp_path: Path
) -> None:
    """Hadoop by itself tries for a quarter of an hour, and the test ends before."""
    warehouse = f"abfs://{of('gone')}/lake"
    closed = Storage.model_validate(azure.storage(endpoint="http://127.0.0.1:1", patience_s=2.0))
    monkeypatch.setenv(VARIABLE, closed.as_text())
    reach(spark, placed(warehouse), str(tmp_path))
    with pytest.raises(StorageUnreachable):
        KernelTable(spark, f"{warehouse}/log").existing()


def test_config_check_says_in_seconds_what_is_wrong_with_it(azure: Azurite, tmp_path: Path) -> None:
    def said(warehouse: str, **storage: object) -> str:
        config = parse({"warehouse": warehouse, "storage": azure.storage(**storage)}, where="x")
        return next(one.line() for one in checks(config) if one.of == "warehouse")

    there, key = azure.with_container("checked"), tmp_path / "key"
    key.write_text("AAAA" + azure.key_file.read_text()[4:])
    assert said(there) == f"ok      warehouse: {there}: a file was written and removed"
    assert "[ContainerNotFound]" in said(f"abfs://{of('nowhere')}/lake")
    assert "[AuthorizationFailure]" in said(there, account_key=f"file:{key}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun_s = time.monotonic()
        text = said(there, endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "does not answer; expected a file that is written and removed within 10 s" in text
    assert time.monotonic() - begun_s < 20
