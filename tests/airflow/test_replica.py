"""The DAGs at work: a live master, a replica on S3 with a hole, Spark jobs that a real Airflow submits.

Of the storage's keys one is in the environment of Airflow's worker, the other in a file.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import load
from pipeline.demo.s3_server import OWNER, S3Server, running_server
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.storage.settings import VARIABLE
from sources.rocketmq.producer.workload import send_workload, workload
from tests.airflow.installation import KEY_VARIABLE, Airflow, Api
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.lake import Lake
from tests.objectstore.s3_requests import Kind
from tests.pipeline.job_toml import job_toml
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.running import assert_covered, encoded, replicate_now

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("submitted"),
]

WITHIN_S = 400
"""A run is a few starts of Spark, one after the other."""

MESSAGES = 300
"""Sent twice: what the replica does not begin with, and what it has."""

LOG = "rocketmq/test"
VERSION = r"_delta_log/\d{20}\.json$"


@dataclass(frozen=True)
class Twin:
    """A master, and a replica that begins in its `middle`, by way of a link to a server that checks keys."""

    served: Served
    middle: int
    end: int
    warehouse: str
    job: Path
    server: S3Server
    link: FaultProxy

    @property
    def first_offset(self) -> int:
        """Of all rows, as another engine reads them past the link."""
        rows = Lake(self.server).table("log").to_pyarrow_table(columns=["offset"])
        offsets: list[int] = rows["offset"].to_pylist()
        return min(offsets)


@pytest.fixture(scope="module")
def twin(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """Replicated by the session of the tests, whose tasks have no new variables: it finds both keys in files."""
    folder = tmp_path_factory.mktemp("twin")
    for name, key in (("access", OWNER.access_key), ("secret", OWNER.secret_key)):
        (folder / name).write_text(key)
    with (
        embedded_master(folder / "store") as served,
        running_server("airflows", checks_access=True) as server,
        FaultProxy(server.port) as link,
        pytest.MonkeyPatch.context() as patch,
    ):
        send_workload(served.master.address, workload(0), count=MESSAGES)
        middle = served.end
        send_workload(served.master.address, workload(1), count=MESSAGES)
        warehouse = f"s3://{server.bucket}/lake"
        log = {"id": LOG, **served.options, "parallel_reads": True, "starting_offset": middle}

        def job_file(place: Path, access_key: str) -> Path:
            storage = {"endpoint": link.endpoint, "access_key": access_key, "secret_key": f"file:{folder}/secret"}
            place.mkdir()
            return job_toml(place, log, warehouse=warehouse, storage=storage)

        config = load(job_file(folder / "here", f"file:{folder}/access"))
        patch.setenv(VARIABLE, config.storage.as_text())
        reach(spark, placed(warehouse), tempfile.gettempdir())
        replicate_now(spark, config)
        job = job_file(folder / "there", f"env:{KEY_VARIABLE}")
        yield Twin(served, middle, served.end, warehouse, job, server, link)


def assert_no_key(airflow: Airflow, what_tasks_said: str) -> None:
    """In anything that Airflow has written, what its tasks said included."""
    texts = {file: file.read_bytes() for file in airflow.home.rglob("*") if file.is_file()}
    assert [file for file, text in texts.items() if what_tasks_said.encode() in text]
    keys = (OWNER.access_key, OWNER.secret_key)
    assert not [(key, file) for key in keys for file, text in texts.items() if key.encode() in text]


def test_a_backfill_closes_a_hole_by_conditional_writes(
    airflow: Airflow, api: Api, spark: SparkSession, twin: Twin
) -> None:
    assert twin.first_offset == twin.middle
    with twin.link.counted() as asked:
        filling = api.trigger("logtwin_backfill", log=LOG, config=str(twin.job))
        assert filling.ended(WITHIN_S) == "success", filling.log("holes")
    assert filling.tasks()["fill"][0]["rendered_map_index"] == f"0 – {twin.middle}"
    assert twin.served.end == twin.end
    log, ledger = (spark.read.format("delta").load(f"{twin.warehouse}/{name}").toArrow() for name in ("log", "ledger"))
    assert encoded(log.sort_by("offset")) == twin.served.log()
    assert_covered(ledger.sort_by("start").to_pylist(), twin.served.log())
    [told] = filling.result("coverage")["logs"]
    assert [(one["start"], one["end"]) for one in told["whole"]] == [(0, twin.end)]
    written = asked.of(Kind.PUT, key=VERSION)
    assert {seen.request.key.split("/")[1] for seen in written} >= {"log", "ledger"}
    assert all(seen.request.is_conditional for seen in written)
    assert_no_key(airflow, LOG)
