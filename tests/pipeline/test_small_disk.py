"""A folder that tables cannot be in, and a disk without room: one line at the start; a job that runs waits for room."""

import json
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import RunFile, runs_of
from pipeline.system.folders import process_folder
from pipeline.system.processes import free_port
from sinks.batch.proof import BatchStep
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
from tests.pipeline.scraping import scrape, values
from tests.pipeline.small_disk import disk as disk
from tests.pipeline.small_disk import fill
from tests.pipeline.test_ends import check_end
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


def test_a_disk_is_looked_at_before_spark_starts(
    disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every verb that writes; what makes room needs none. Nothing is left of the look."""
    lake = placed(str(disk / "new" / "lake"))
    check_writable(lake)
    filling = fill(disk)
    with pytest.raises(StorageUnreachable, match="No space left"):
        check_writable(lake)
    check_writable(lake, makes_room=True)
    filling.unlink()
    assert list(disk.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    filling = fill(disk)
    with pytest.raises(StorageUnreachable, match="TMPDIR"):
        process_folder.__wrapped__()
    filling.unlink()
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


@pytest.mark.spark
def test_a_job_whose_disk_is_full_says_so_to_everybody_and_goes_on(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that it writes is there: tables, temporary files, blocks of Spark's, its log. Then it ends in order."""
    operator, log, port = Operator(disk, capsys), FaultyLog(tmp_path / "master"), free_port()
    log.append(random.Random(1), 50)
    operator.configure(path=log.path)
    with operator.job.open("a") as job:
        job.write(f'[metrics]\nport = {port}\n[spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "512m"\n')

    def at(offset: int, phase: Phase) -> bool:
        (found,) = json.loads(operator.must("status", "--json").out)["logs"]
        return (found["position"], found["phase"]) == (offset, phase)

    def fill_and_free() -> None:
        wait_until(lambda: at(log.end, Phase.RUNNING), "the first records")
        reached, filling = log.end, fill(disk)
        log.append(random.Random(2), 50)
        wait_until(lambda: at(reached, Phase.WAITING), "a status that says that it waits")
        wait_until(lambda: values(scrape(port))["logtwin_phase", TEST, "waiting"] == 1, "metrics that say so")
        assert "No space left" in operator.must("status").out
        filling.unlink()
        wait_until(lambda: at(log.end, Phase.RUNNING), "the rest")

    places = {"SPARK_LOCAL_DIRS": str(disk / "blocks"), "TMPDIR": str(disk)}
    check_end(
        operator.job, signal.SIGTERM, to_group=False, until=f"{TEST}: running", then=fill_and_free, environment=places
    )
    assert_whole(operator.lake, log.data())
