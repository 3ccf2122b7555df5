"""The DAGs at work: a live master, a replica with a hole, Spark jobs that a real Airflow submits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sources.rocketmq.workload import send_workload, workload
from tests.airflow.installation import Airflow, Api
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.running import assert_complete, job_config, replicate_now

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("submitted"),
]

WITHIN_S = 400
"""A run is a few starts of Spark, one after the other."""

MESSAGES = 300
"""Sent three times: what the replica does not begin with, in two parts, and what it has."""

LOG = "rocketmq/test"


@dataclass(frozen=True)
class Twin:
    """A master, and a replica that begins at the second of `ends`: where the master's log ended after each sending."""

    served: Served
    ends: list[int]
    warehouse: Path
    job: Path

    @property
    def versions(self) -> tuple[int, int]:
        """Of the tables of the log and of its ledger."""
        log, ledger = (DeltaTable(str(self.warehouse / name)).version() for name in ("log", "ledger"))
        return log, ledger

    @property
    def offsets(self) -> list[int]:
        """Of every row."""
        table = DeltaTable(str(self.warehouse / "log")).to_pyarrow_table(columns=["offset"])
        return sorted(table["offset"].to_pylist())


@pytest.fixture(scope="module")
def twin(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """The first test fills its hole; to the last one that is the same."""
    folder = tmp_path_factory.mktemp("twin")
    with embedded_master(folder / "store") as served:
        ends = []
        for seed in range(3):
            send_workload(served.master.address, workload(seed), count=MESSAGES)
            ends.append(served.end)
        log = {**served.options, "parallel_reads": True, "starting_offset": ends[1]}
        replicate_now(spark, job_config(folder / "lake", **log))
        job = folder / "job.toml"
        lines = [f"{key} = {json.dumps(value)}" for key, value in log.items()]
        job.write_text("\n".join([f'warehouse = "{folder}/lake"', "[[logs]]", f'id = "{LOG}"', *lines, ""]))
        yield Twin(served, ends, folder / "lake", job)


def by_dags_test(airflow: Airflow, dag_id: str, without: str, **conf: object) -> None:
    """A run without a scheduler and without one of the tasks, which must succeed."""
    done = airflow.run("dags", "test", dag_id, "--mark-success-pattern", without, "-c", json.dumps(conf))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_a_backfill_closes_a_hole_and_another_one_changes_nothing(
    airflow: Airflow, api: Api, spark: SparkSession, twin: Twin
) -> None:
    first, middle, end = twin.ends
    where = {"log": LOG, "config": str(twin.job)}
    assert twin.offsets[0] == middle

    filling = api.trigger("logtwin_backfill", **where)
    assert filling.ended(WITHIN_S) == "success", filling.log("holes")
    assert filling.tasks()["fill"][0]["rendered_map_index"] == f"0 – {middle}"
    assert twin.served.end == end
    assert_complete(spark, twin.warehouse, twin.served.log())
    [told] = filling.result("coverage")["logs"]
    assert [(one["start"], one["end"]) for one in told["whole"]] == [(0, end)]

    before = twin.versions
    by_dags_test(airflow, "logtwin_backfill", without="coverage", to=str(first), **where)
    assert twin.versions == before


def test_a_changed_byte_turns_the_verification_red(airflow: Airflow, api: Api, twin: Twin) -> None:
    """That a submission which ends well is a green task, the backfill has shown."""
    change_a_byte(twin)
    red = api.trigger("logtwin_verify_whole", config=str(twin.job))
    assert red.ended(WITHIN_S) == "failed"
    assert "Error code is: 5" in red.log("verify")
    assert red.tasks()["verify"][0]["try_number"] == 1
    assert incidents(twin)


def change_a_byte(twin: Twin) -> None:
    """The last one of the master's log: of a message's properties, which no checksum of its own covers."""
    at = twin.ends[-1] - 2
    segment = max(file for file in (twin.served.master.settings.store / "commitlog").iterdir() if int(file.name) <= at)
    with segment.open("r+b") as file:
        file.seek(at - int(segment.name))
        byte = file.read(1)
        file.seek(at - int(segment.name))
        file.write(bytes([byte[0] ^ 1]))


def incidents(twin: Twin) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(twin.warehouse / "incidents")).to_pyarrow_table().to_pylist()
    return found
