"""A folder that tables cannot be in, and a disk without room: one line at the start; a job that runs waits for room."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_file import RunFile, runs_of
from sinks.batch.result import BatchStep
from sinks.delta.delta_log import newest
from sinks.storage.check import check_writable
from sinks.storage.place import placed
from sources.errors import ConfigurationError, StorageUnreachable
from tests.patience import wait_until
from tests.pipeline import running
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.read_back import TEST, assert_whole
from tests.pipeline.running import job_config, run_until
from tests.pipeline.test_run_state import run_of

WRITING = (
    "replicate",
    "repair",
    "verify",
    "maintain",
    "backfill --log rocketmq/test",
    "incidents close any --note any",
    "tables rebuild orders",
    "tables retry orders",
    "tables drop orders --yes",
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    with pytest.raises(OSError, match="No space left"), (disk / "fill").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return disk / "fill"


def test_a_disk_is_looked_at_before_spark_starts(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By every verb that writes; what makes room needs none. Nothing is left of the look."""
    lake = placed(str(disk / "new" / "lake"))
    check_writable(lake)
    filling = fill(disk)
    with pytest.raises(StorageUnreachable, match="No space left"):
        check_writable(lake)
    check_writable(lake, makes_room=True)
    filling.unlink()
    assert list(disk.iterdir()) == []
    operator = Operator(disk, capsys)
    operator.configure(master="127.0.0.1:1", remoting="127.0.0.1:1")
    with operator.job.open("a") as job:
        job.write('[[tables]]\nname = "orders"\nfrom = ["orders"]\n')
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(ConfigurationError, match="Read-only"):
        check_writable(lake)
    for verb in WRITING:
        said = operator.does(verb)
        found = said.code, len(said.err.splitlines()), f"{disk}/lake cannot be written" in said.err
        assert found == (2, 1, True), (verb, said)


def test_a_run_says_on_a_full_disk_that_it_waits(disk: Path) -> None:
    """If it was there before; and what cannot be written leaves what was there."""
    mine, another = RunFile(str(disk), "mine"), RunFile(str(disk), "another")
    mine.write(run_of())
    filling, waiting = fill(disk), run_of(phase=Phase.WAITING, error="x" * 8000)
    mine.write(waiting)
    for file, said in ((mine, run_of(error="x" * 80_000)), (another, run_of())):
        with pytest.raises(OSError, match="No space left"):
            file.write(said)
    assert mine.read() == waiting
    filling.unlink()
    mine.write(run_of())
    assert mine.read() == run_of()
    assert [one.name for one in (disk / "_runs").iterdir()] == ["mine.json"]


@pytest.mark.parametrize("step", BatchStep)
def test_a_job_waits_for_room_after_each_step_of_a_batch_and_goes_on(
    session: SparkSession, disk: Path, tmp_path: Path, step: BatchStep
) -> None:
    log, reached = FaultyLog(tmp_path / "master"), Counter[BatchStep]()
    log.append(random.Random(1), 120)
    config = job_config(disk / "lake", path=str(log.path), max_bytes_per_trigger=log.end // 4)

    def fill_at_the_second_batch(done: BatchStep) -> None:
        reached[done] += 1
        if done is step and reached[done] == 2:
            fill(disk)

    def is_said() -> bool:
        (run,) = runs_of(config.warehouse)
        said = run.logs[TEST]
        return said["phase"] == Phase.WAITING and "No space left" in said["last_error"]

    running.register(session)
    job = Job(session, config, available_now=False, on_step=fill_at_the_second_batch)
    job.start()
    try:
        waits = run_until(job, lambda now: now.phase in (Phase.WAITING, Phase.FAILED))
        assert isinstance(waits.error, StorageUnreachable), waits.error
        wait_until(is_said, "a file of the run that says that it waits")
        run_until(job, lambda now: now.failures["StorageUnreachable"] > 2)
        (disk / "fill").unlink()
        run_until(job, lambda now: now.position == log.end and now.phase is Phase.RUNNING)
    finally:
        job.close()
    assert_whole(disk / "lake", log.data())
    if step is BatchStep.LEDGER:  # else a commit failed, which may have landed unheard: its file is left to the upkeep
        files = {one.name for one in (disk / "lake" / "log").glob("*.parquet")}
        assert (version := newest(f"{disk}/lake/log"))
        assert files == set(version.files)
