"""One S3 server and one Azurite a session, and a proxy in front of the former."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server, running_server
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.storage.settings import VARIABLE
from tests.objectstore.azurite import Azurite, azurite, what_is_missing
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.server import at, with_own_bucket
from tests.pipeline.faulty_log import FaultyLog


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    """A real server, which lets everyone in."""
    with running_server("lakes") as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server) -> S3Server:
    """It, with a bucket of the test's own."""
    return with_own_bucket(s3_process)


@pytest.fixture(scope="session")
def s3_way(s3_process: S3Server) -> Iterator[FaultProxy]:
    """One for all tests: where another way is said Spark starts Python workers anew, which takes seconds."""
    with FaultProxy(s3_process.port) as proxy:
        yield proxy


@pytest.fixture
def s3_link(s3: S3Server, s3_way: FaultProxy) -> Iterator[FaultProxy]:
    """A way to it that can be made to fail."""
    yield s3_way
    s3_way.heal()


@pytest.fixture(scope="module")
def s3_guarded() -> Iterator[S3Server]:
    """A server that lets in only OWNER and READER of `pipeline.demo.s3_server`, each with a sound signature."""
    with running_server("guarded", checks_access=True) as server:
        yield server


@pytest.fixture
def lake(spark: SparkSession, s3: S3Server, s3_link: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A warehouse on it, by way of the link, that Spark, Kernel and tasks can reach."""
    return lake_on(spark, s3, s3_link, monkeypatch)


def lake_on(spark: SparkSession, s3: S3Server, link: FaultProxy, patch: pytest.MonkeyPatch) -> str:
    """One of a bucket."""
    patch.setenv(VARIABLE, at(link.endpoint).as_text())
    warehouse = f"s3a://{s3.bucket}/lake"
    reach(spark, placed(warehouse), tempfile.gettempdir())
    return warehouse


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """An emulator of Azure; without it the test is skipped."""
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    with azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture
def log(tmp_path: Path) -> FaultyLog:
    written = FaultyLog(tmp_path / "master")
    written.append(random.Random(1), 40)
    return written
