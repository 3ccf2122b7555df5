"""A driver that is killed at random moments, again and again, while messages come in: one copy of everything."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import load
from sources.rocketmq.producer.workload import send_workload, workload
from tests.pipeline.job_toml import SMALL, job_toml
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.read_back import assert_whole, count_of
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

PROJECT = Path(__file__).parents[2]
KILLS = 12
SEED = 20261121


def test_kills_at_random_moments(spark: SparkSession, tmp_path: Path) -> None:
    moments = random.Random(SEED)
    sending = threading.Event()
    with embedded_master(tmp_path / "store") as master:
        log = {**master.options, "max_bytes_per_trigger": 700_000}
        job = job_toml(tmp_path, log, trigger_interval_s=0.2, spark=SMALL)
        producer = threading.Thread(target=send_until, args=(master, sending))
        producer.start()
        try:
            # a start takes about 8 s: some kills come before the first batch, most between or inside later ones
            for _ in range(KILLS):
                kill_after(moments.uniform(6.0, 20.0), job)
        finally:
            sending.set()
            producer.join()
        left = count_of(tmp_path / "lake")
        replicate_now(spark, load(job))
        assert_whole(tmp_path / "lake", master.log())
    commits = count_of(tmp_path / "lake", "ledger")
    print(f"\n{KILLS} kills: {left:,} records were in the table after the last, {commits} commits in the end")  # noqa: T201
    assert left > 0


def send_until(master: Served, done: threading.Event) -> None:
    seed = 0
    while not done.is_set():
        seed += 1
        send_workload(master.master.address, workload(seed), count=400, rate_per_s=400)


def kill_after(seconds: float, job: Path) -> None:
    """Run a driver for so long, then it is gone, and its JVM with it or without."""
    command = [sys.executable, "-m", "pipeline", "replicate", "--config", str(job)]
    driver = subprocess.Popen(
        command, cwd=PROJECT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):  # it ends only because it is killed
            driver.wait(seconds)
    finally:
        driver.kill()
        driver.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
