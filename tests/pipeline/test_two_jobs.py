"""Two jobs on one log: the newest owns it, the other stops with a clear error and leaves no row."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.log_replication import Phase
from pipeline.replicate import Job
from sources.datasource import register
from sources.errors import TakenOver
from sources.rocketmq.workload import send_workload, workload
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.running import assert_complete, job_config

pytestmark = pytest.mark.spark


def job_of(spark: SparkSession, lake: Path, master: Served, checkpoints: Path) -> Job:
    config = job_config(lake, **master.options, max_bytes_per_trigger=200_000)
    return Job(spark, config.model_copy(update={"checkpoints": str(checkpoints)}), available_now=False)


def send(master: Served, count: int, seed: int) -> None:
    send_workload(master.master.address, workload(seed), count=count)


def run_until(job: Job, offset: int) -> TakenOver | None:
    """Run until the position is at `offset`, or the log was taken over: how."""
    try:
        job.run(lambda logs: (logs[0].position or 0) < offset, poll_interval_s=0.02)
    except TakenOver as error:
        return error
    return None


def test_the_newest_goes_on_and_the_older_one_stops(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with embedded_master(tmp_path / "store") as master:
        send(master, 500, seed=1)
        older = job_of(spark, tmp_path / "lake", master, tmp_path / "checkpoints-1")
        older.start()
        failures: list[TakenOver | None] = []
        thread = threading.Thread(target=lambda: failures.append(run_until(older, 1 << 62)))
        thread.start()
        try:
            newer = job_of(spark, tmp_path / "lake", master, tmp_path / "checkpoints-2")
            newer.start()
            send(master, 500, seed=2)
            assert run_until(newer, master.end) is None
            thread.join(60)
        finally:
            older.request_stop()
            thread.join()
        assert len(failures) == 1
        assert isinstance(failures[0], TakenOver)
        assert "another job writes this log" in str(failures[0])
        assert older.progress()[0].phase is Phase.FAILED
        assert_complete(spark, tmp_path / "lake", master.log())
