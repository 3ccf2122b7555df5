"""The DAGs at work on a warehouse on S3: one key is in the environment of Airflow's worker, the other in a file."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config import load
from pipeline.display import size
from pipeline.s3_server import OWNER, Server
from sinks.hadoop_storage import reach
from sinks.place import placed
from sinks.storage import VARIABLE
from tests.airflow.installation import KEY_VARIABLE, Airflow, Api
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.lake import Lake
from tests.objectstore.s3_requests import Kind
from tests.objectstore.server import s3_server
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.running import assert_complete, replicate_now

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("submitted"),
]

WITHIN_S = 300
MESSAGES = 200
LOG = "rocketmq/test"
VERSION = r"_delta_log/\d{20}\.json$"


@dataclass(frozen=True)
class Twin:
    """A master of files, and a replica that begins in its `middle`, by way of a link to a server that checks keys."""

    log: FaultyLog
    middle: int
    warehouse: str
    job: Path
    server: Server
    link: FaultProxy

    @property
    def offsets(self) -> list[int]:
        """Of every row, as another engine reads them past the link."""
        rows = Lake(self.server).table("log").to_pyarrow_table(columns=["offset"])
        return sorted(rows["offset"].to_pylist())


@pytest.fixture
def twin(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twin]:
    """Replicated by the session of the tests, whose tasks have no new variables: it finds both keys in files."""
    log = FaultyLog(tmp_path / "master")
    log.append(random.Random(1), MESSAGES)
    middle = log.boundaries[MESSAGES // 2]
    for name, key in (("access", OWNER.access_key), ("secret", OWNER.secret_key)):
        (tmp_path / name).write_text(key)
    with s3_server(checks_access=True) as server, FaultProxy(server.port) as link:
        warehouse = f"s3://{server.bucket}/lake"

        def job_file(name: str, access_key: str) -> Path:
            values: dict[str, dict[str, object]] = {
                "": {"warehouse": warehouse},
                "[storage]": {
                    "endpoint": link.endpoint, "access_key": access_key, "secret_key": f"file:{tmp_path}/secret",
                },
                "[[logs]]": {"id": LOG, "path": str(log.path), "starting_offset": middle},
            }  # fmt: skip
            lines = [
                [head, *(f"{key} = {json.dumps(value)}" for key, value in of.items())] for head, of in values.items()
            ]
            (tmp_path / name).write_text("\n".join(line for section in lines for line in section))
            return tmp_path / name

        config = load(job_file("here.toml", f"file:{tmp_path}/access"))
        monkeypatch.setenv(VARIABLE, config.storage.as_text())
        reach(spark, placed(warehouse), tempfile.gettempdir())
        replicate_now(spark, config)
        yield Twin(log, middle, warehouse, job_file("job.toml", f"env:{KEY_VARIABLE}"), server, link)


def test_verified_then_filled_by_tasks_that_find_the_keys_and_say_them_nowhere(
    airflow: Airflow, api: Api, spark: SparkSession, twin: Twin
) -> None:
    everything, end = twin.log.boundaries[:-1], twin.log.end
    assert twin.offsets == [at for at in everything if at >= twin.middle]

    with twin.link.counted() as asked:
        green = api.trigger("logtwin_verify_whole", config=str(twin.job))
        assert green.ended(WITHIN_S) == "success", green.log("verify")
    compared = f"{LOG}: {size(end - twin.middle)} in "
    assert compared in green.log("verify")
    assert asked.of(Kind.GET, key=r"^lake/log/.*\.parquet$")

    with twin.link.counted() as asked:
        filling = api.trigger("logtwin_backfill", log=LOG, config=str(twin.job))
        assert filling.ended(WITHIN_S) == "success", filling.states()
    assert filling.tasks()["fill"][0]["rendered_map_index"] == f"0 – {twin.middle}"
    [told] = filling.result("coverage")["logs"]
    assert [(one["start"], one["end"]) for one in told["whole"]] == [(0, end)]
    assert twin.offsets == everything
    assert_complete(spark, twin.warehouse, twin.log.data())
    written = asked.of(Kind.PUT, key=VERSION)
    assert {seen.request.key.split("/")[1] for seen in written} >= {"log", "ledger"}
    assert all(seen.request.is_conditional for seen in written)

    texts = {file: file.read_bytes() for file in airflow.home.rglob("*") if file.is_file()}
    assert [file for file, text in texts.items() if compared.encode() in text]  # what the tasks said is among them
    keys = (OWNER.access_key, OWNER.secret_key)
    assert not [(key, file) for key in keys for file, text in texts.items() if key.encode() in text]
