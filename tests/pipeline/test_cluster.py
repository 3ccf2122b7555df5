"""Eight logs on a cluster of two workers, one of which dies: the job ends by itself, and nothing is lost or doubled.

The workers share the warehouse and the masters, which they read over HA, and nothing else.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.large_log import write_large_log
from tests.patience import eventually, wait_until
from tests.pipeline.job_toml import job_toml
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.read_back import assert_whole
from tests.pipeline.standalone import Submission, Worker, cluster, see_them_end, submitted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LOGS = 8
FILE_BYTES = 8 * 1024 * 1024
BATCH_BYTES = 700_000  # many, so that the job is at work long after the first commits


@contextmanager
def running_masters(folder: Path, log_bytes: int) -> Iterator[list[Served]]:
    """Of LOGS logs of about `log_bytes`. Each has a topic of its own: no record passes for one of another log."""
    with ExitStack() as running:
        masters = []
        for number in range(LOGS):
            log = folder / f"log-{number}"
            write_large_log(log, log_bytes, file_size_bytes=FILE_BYTES, topics=[f"of-{number}"])
            masters.append(running.enter_context(embedded_master(folder / f"master-{number}", commitlog=log)))
        yield masters


def job_file(folder: Path, masters: list[Served]) -> Path:
    ids = [f"rocketmq/broker-{number}" for number in range(len(masters))]
    logs = (
        {"id": log_id, **one.options, "max_bytes_per_trigger": BATCH_BYTES}
        for log_id, one in zip(ids, masters, strict=True)
    )
    return job_toml(folder, *logs, metadata={"enabled": False})


def opened(path: str) -> DeltaTable:
    """Again where a file that was listed is gone: each commit renames one."""
    while True:
        with suppress(OSError):
            return DeltaTable(path)


def positions(folder: Path) -> list[int]:
    """Up to where each log is committed, 0 where nothing is."""
    path = str(folder / "lake" / "log")
    if not DeltaTable.is_deltatable(path):
        return [0] * LOGS
    table = opened(path)
    return [table.transaction_version(f"logtwin/rocketmq/broker-{number}@0") or 0 for number in range(LOGS)]


def see_committed(folder: Path, job: Submission, committed: int) -> None:
    """Until so many bytes are. Raises AssertionError where the job ends before."""
    wait_until(
        lambda: job.goes_on(sum(positions(folder)) >= committed), f"{committed} bytes committed", 400, look_every_s=0.01
    )


@contextmanager
def at_work(folder: Path, job: Submission, worker: Worker, masters: list[Served], committed: int) -> Iterator[None]:
    """That much is committed, and a task of `worker` waits for bytes of a master while the `with` lasts.

    It reads what a master has in milliseconds: so the masters say nothing, now and then, until one is found waiting.
    Raises AssertionError where none ever is.
    """
    ports = {master.master.ha_address.port for master in masters}
    see_committed(folder, job, committed)
    for _ in range(200):
        with ExitStack() as pauses:
            for master in masters:
                pauses.enter_context(master.paused())
            if eventually(lambda: job.goes_on(bool(worker.connected_to() & ports)), within_s=0.5):
                yield
                return
        time.sleep(0.1)  # long enough for an answer, short enough that the job does not get far
    raise AssertionError("no task of the worker at work")


def replicate_while_workers_die(folder: Path, wheel: Path, log_bytes: int, moments: Sequence[float]) -> None:
    """`moments` are shares of what there is to commit; a worker that dies is replaced, but the last one."""
    with running_masters(folder, log_bytes) as masters, cluster(folder / "cluster", workers=2) as two:
        whole = sum(master.end for master in masters)
        with_ui = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
        with submitted(two, wheel, job_file(folder, masters), properties=with_ui) as job:
            for number, moment in enumerate(moments):
                with at_work(folder, job, two.workers[number], masters, round(moment * whole)):
                    assert two.workers[number].daemon_modules() == {"pipeline.spark.python_daemon"}
                    tasks = two.workers[number].kill()
                see_them_end(tasks)
                assert sum(positions(folder)) < whole
                if number + 1 < len(moments):
                    two.start_worker()
            assert job.ended() == 0, job.errors.read_text()[-5000:]
        assert job.errors.read_text().count("Lost executor") == len(moments)
        assert "service 'SparkUI'" in job.errors.read_text()  # logtwin turns it off: what is submitted goes over that
        assert_all_whole(folder, masters, job.output.read_text())


def assert_all_whole(folder: Path, masters: list[Served], said: str) -> None:
    for number, master in enumerate(masters):
        assert f"rocketmq/broker-{number}: done at offset {master.end}" in said
        assert_whole(folder / "lake", master.log(), f"rocketmq/broker-{number}")


@pytest.mark.nightly
def test_a_worker_dies(tmp_path: Path, wheel: Path) -> None:
    replicate_while_workers_die(tmp_path, wheel, 8_000_000, [0.25])


@pytest.mark.soak
def test_workers_die_one_after_the_other(tmp_path: Path, wheel: Path) -> None:
    moments = random.Random(9)
    replicate_while_workers_die(tmp_path, wheel, 120_000_000, sorted(moments.uniform(0.05, 0.9) for _ in range(6)))
