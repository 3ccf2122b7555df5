"""Two jobs on one log: the second is refused; told to take over, it owns the log, and the other stops and says so."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.job import log_group
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sources.datasource import register
from sources.errors import TakenOver
from sources.rocketmq.producer.workload import send_workload, workload
from sources.rocketmq.wire.client import RemotingClient
from tests.patience import PATIENCE_S, eventually
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.read_back import assert_whole
from tests.pipeline.running import job_config, run_until

pytestmark = pytest.mark.spark


def job_of(spark: SparkSession, lake: Path, master: Served, *, take_over: bool = False) -> Job:
    config = job_config(lake, **master.options, max_bytes_per_trigger=200_000)
    return Job(spark, config, available_now=False, take_over=take_over)


def send(master: Served, count: int, seed: int) -> None:
    send_workload(master.master.address, workload(seed), count=count)


def running(job: Job) -> tuple[threading.Thread, list[TakenOver]]:
    """A started job, run until it is stopped or loses its log: by what, once the thread has ended."""
    failures: list[TakenOver] = []

    def run() -> None:
        try:
            job.run(poll_interval_s=0.02)
        except TakenOver as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failures


def slaves(master: Served) -> int:
    with RemotingClient(master.master.address) as client:
        return len((client.ha_status() or {}).get("haConnectionInfo", []))


def test_an_idle_job_that_lost_its_log_stops_reporting(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch tells it: it looks."""
    monkeypatch.setattr(log_group, "CHECK_OWNERSHIP_EVERY_S", 0.5)
    register(spark)
    with embedded_master(tmp_path / "store") as master:
        send(master, 50, seed=1)
        older = job_of(spark, tmp_path / "lake", master)
        older.start()
        thread, failures = running(older)
        newer = job_of(spark, tmp_path / "lake", master, take_over=True)
        try:
            assert eventually(lambda: older.progress()[0].bytes == master.end and slaves(master) == 1)
            batches = older.progress()[0].batches
            newer.start()
            thread.join(PATIENCE_S)
            [failure] = failures
            assert "another job writes this log" in str(failure)
            gone = older.progress()[0]
            assert (gone.phase, gone.batches, gone.connected_since) == (Phase.FAILED, batches, None)
            assert (gone.incidents, gone.failures) == ({}, {"TakenOver": 1})
            assert eventually(lambda: slaves(master) == 1)
            send(master, 100, seed=2)
            end = master.end
            run_until(newer, lambda now: now.position == end)
        finally:
            newer.close()
            older.request_stop()
            thread.join(PATIENCE_S)
        assert_whole(tmp_path / "lake", master.log())
