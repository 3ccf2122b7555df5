"""A job of several logs; a master that goes away and comes back; a stop."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config import parse
from pipeline.log_replication import Phase, Progress
from pipeline.replicate import Job
from sources.datasource import register
from sources.errors import CorruptRecord, MasterUnreachable
from sources.rocketmq.workload import send_workload, workload
from tests.pipeline.masters import embedded_master
from tests.pipeline.running import assert_complete, job_config, log_table
from tests.sources.rocketmq.broker.embedded import running_master, settings_for
from tests.truth import Fixture

pytestmark = pytest.mark.spark


def test_an_error_in_one_log_stops_that_one_only(
    spark: SparkSession, fixture_497: Fixture, fixture_550: Fixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register(spark)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    data = bytearray((fixture_497.commitlog_path / "00000000000000000000").read_bytes())
    row = next(row for row in fixture_497.rows if row["physical_offset"] > 500_000)
    data[row["physical_offset"] + 4] ^= 1  # a magic
    (damaged / "00000000000000000000").write_bytes(data)
    sound = {"id": "rocketmq/sound", "path": str(fixture_550.commitlog_path)}
    broken = {"id": "rocketmq/broken", "path": str(damaged)}
    job = Job(
        spark, parse({"warehouse": str(tmp_path / "lake"), "logs": [broken, sound]}, where="x"), available_now=True
    )
    job.start()
    with pytest.raises(CorruptRecord) as caught, caplog.at_level(logging.ERROR):
        job.run()
    assert caught.value.log == "rocketmq/broken"
    assert "rocketmq/broken" in caplog.text
    phases = {progress.log_id: progress.phase for progress in job.progress()}
    assert phases == {"rocketmq/broken": Phase.FAILED, "rocketmq/sound": Phase.DONE}
    table = log_table(spark, tmp_path / "lake")
    assert table.where("log_id = 'rocketmq/sound'").count() == len(fixture_550.rows)
    assert table.where("log_id = 'rocketmq/broken'").count() == 0


def test_a_master_that_comes_back_is_replicated_on(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    settings = settings_for(tmp_path / "store")
    with running_master(settings) as master:
        ports = {"port": master.address.port, "ha_port": master.ha_address.port}
        options = {"master": str(master.ha_address), "remoting": str(master.address)}
        send_workload(master.address, workload(1), count=300)
        config = job_config(tmp_path / "lake", **options, connect_attempts=1, connect_timeout_ms=500)
        job = Job(spark, config, available_now=False)
        job.start()
        first = run_until(job, lambda progress: progress.lag_bytes == 0 and (progress.position or 0) > 0)
    away = run_until(job, lambda progress: progress.phase is Phase.WAITING)
    assert isinstance(away.error, MasterUnreachable)
    assert away.position == first.position
    with running_master(settings, **ports) as master:
        send_workload(master.address, workload(2), count=300)
        run_until(job, lambda progress: progress.phase is Phase.RUNNING and progress.records > first.records)
        run_until(job, lambda progress: progress.lag_bytes == 0)
        job.close()
        assert job.progress()[0].phase is Phase.STOPPED
        assert job.progress()[0].error is None
        files = sorted((settings.store / "commitlog").iterdir())
        log = b"".join(file.read_bytes() for file in files)[: job.progress()[0].position]
    assert_complete(spark, tmp_path / "lake", log)


def run_until(job: Job, reached: object) -> Progress:
    """Poll a started job of one log until `reached` says so of its progress; that progress."""
    pause = threading.Event()
    for _ in range(1200):
        job.logs[0].poll(available_now=False, now=datetime.now(UTC))
        progress = job.progress()[0]
        if callable(reached) and reached(progress):
            return progress
        pause.wait(0.05)
    raise AssertionError(f"not reached: {progress}")


def test_a_stop_ends_between_two_batches(spark: SparkSession, fixture_550: Fixture, tmp_path: Path) -> None:
    register(spark)
    with embedded_master(tmp_path / "store", commitlog=fixture_550.commitlog_path) as master:
        config = job_config(tmp_path / "lake", **master.options, max_bytes_per_trigger=500_000)
        job = Job(spark, config, available_now=False)
        job.start()
        job.run(lambda logs: logs[0].batches < 2, poll_interval_s=0.01)
        stopped = job.progress()[0]
    assert stopped.phase is Phase.STOPPED
    assert stopped.error is None
    position = stopped.position
    assert position is not None
    assert_complete(spark, tmp_path / "lake", fixture_550.log[:position])
