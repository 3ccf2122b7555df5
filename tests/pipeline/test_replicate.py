"""A job of several logs; masters that go away, come back, or are another log then; a stop; a log that is taken over."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.job import log_group
from pipeline.job.replicate import Job
from pipeline.job.replication import Replication
from pipeline.monitoring.progress import Phase, Progress
from sinks.batch.proof import BatchStep
from sinks.values.incident import Action
from sources.datasource import register
from sources.errors import AboveMaximum, LogtwinError, MasterUnreachable, Rewritten, TakenOver
from sources.loss import Condition
from sources.offsets import Offset
from sources.rocketmq.producer.workload import send_workload, workload
from sources.rocketmq.wire.client import RemotingClient
from tests.around import at_each
from tests.patience import PATIENCE_S, eventually
from tests.pipeline import group_in_process
from tests.pipeline.faulty_link import Fault, Link
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.read_back import assert_whole
from tests.pipeline.repair_bench import Bench, replicate_in_process
from tests.pipeline.running import job_config, run_until
from tests.sources.rocketmq.embedded.embedded import master_and_loop, running_master, settings_for
from tests.truth import Fixture

pytestmark = pytest.mark.spark


def records(lake: Path) -> dict[str, int]:
    return Counter(DeltaTable(f"{lake}/log").to_pyarrow_table(columns=["log_id"])["log_id"].to_pylist())


def test_an_unforeseen_error_ends_its_own_log_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it starts, and while it is looked at."""
    group_in_process.use(monkeypatch)
    log = FaultyLog(tmp_path / "master")
    log.append(random.Random(1), 20)
    logs = [{"id": f"rocketmq/{name}", "path": str(log.path)} for name in ("a", "starting", "looked-at")]
    job = Job(spark, parse({"warehouse": str(tmp_path / "lake"), "logs": logs}, where="x"), available_now=True)

    fail = Mock(side_effect=KeyError("a defect"))
    monkeypatch.setattr(job.logs[1]._logs, "claim", fail)
    monkeypatch.setattr(job.logs[2], "_ask_master", fail)
    job.start()
    with pytest.raises(LogtwinError, match="unforeseen"):
        job.run()
    assert {one.id: one.phase for one in job.logs} == {
        "rocketmq/a": Phase.DONE,
        "rocketmq/starting": Phase.FAILED,
        "rocketmq/looked-at": Phase.FAILED,
    }
    assert records(tmp_path / "lake")["rocketmq/a"] == len(log.boundaries) - 1  # the third may have been read before


def test_a_master_that_comes_back_is_replicated_on(spark: SparkSession, tmp_path: Path) -> None:
    """HA-60."""
    register(spark)
    settings = settings_for(tmp_path / "store")
    with running_master(settings) as master:
        ports = {"port": master.address.port, "ha_port": master.ha_address.port}
        options = {"master": str(master.ha_address), "remoting": str(master.address)}
        send_workload(master.address, workload(1), count=50)
        config = job_config(tmp_path / "lake", **options, connect_attempts=1, connect_timeout_ms=500)
        job = Job(spark, config, available_now=False)
        job.start()
        first = run_until(job, is_caught_up)
    away = run_until(job, lambda progress: progress.phase is Phase.WAITING)
    assert isinstance(away.error, MasterUnreachable)
    assert away.position == first.position
    assert away.last_error == str(away.error)
    with running_master(settings, **ports) as master:
        send_workload(master.address, workload(2), count=50)
        run_until(job, lambda progress: progress.phase is Phase.RUNNING and progress.records > first.records)
        run_until(job, lambda progress: is_caught_up(progress) and progress.last_error is None)  # it is well again
        job.close()
        last = job.progress()[0]
        assert last.phase is Phase.STOPPED
        assert last.error is None
        assert last.failures["MasterUnreachable"] >= 1
        assert list(last.stage_s) == list(BatchStep)
        assert all(spent_s > 0 for spent_s in last.stage_s.values())
        files = sorted((settings.store / "commitlog").iterdir())
        log = b"".join(file.read_bytes() for file in files)[: job.progress()[0].position]
    assert_whole(tmp_path / "lake", log)


def is_caught_up(progress: Progress) -> bool:
    return progress.lag == 0 and (progress.position or 0) > 0


def two_logs(lake: Path, log: Path) -> Config:
    logs = [{"id": f"rocketmq/{name}", "path": str(log)} for name in ("first", "second")]
    return parse({"warehouse": str(lake), "trigger_interval_s": 0.1, "logs": logs}, where="x")


class Held:
    """A log of a job that claims only once it `may`."""

    def __init__(self, one: Replication, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may = threading.Event()
        at_each(monkeypatch, one._logs, "claim", lambda **_: self.may.wait(PATIENCE_S))


def test_logs_that_run_are_replicated_while_others_start(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master may take its time to let one begin; nobody else should wait for that."""
    register(spark)
    job = Job(spark, two_logs(tmp_path / "lake", fixture_550.commitlog_path), available_now=False)
    first, second = job.logs
    held = Held(second, monkeypatch)
    seen = set()

    def look(logs: list[Progress]) -> bool:
        if logs[0].position == fixture_550.max_offset:
            seen.add((first.phase, second.phase))
            held.may.set()
        return True

    try:
        job.start(look)
        assert (Phase.RUNNING, Phase.STARTING) in seen
        assert second.phase is Phase.RUNNING
    finally:
        job.close()


@pytest.mark.parametrize("asked_by", ["request_stop", pytest.param("on_poll", marks=pytest.mark.nightly)])
def test_a_stop_while_logs_start_ends_all_of_them(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_by: str
) -> None:
    register(spark)
    job = Job(spark, two_logs(tmp_path / "lake", fixture_550.commitlog_path), available_now=False)
    held = Held(job.logs[1], monkeypatch)

    def stop(_: list[Progress]) -> bool:
        if asked_by == "request_stop":
            job.request_stop()
        return asked_by == "request_stop"

    job.start(stop)
    assert job.logs[1].phase is Phase.STARTING
    held.may.set()
    job.run(stop)
    assert [one.phase for one in job.progress()] == [Phase.STOPPED, Phase.STOPPED]
    assert not spark.streams.active


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


@pytest.fixture
def served(bench: Bench) -> Iterator[Served]:
    with master_and_loop(settings_for(bench.log.root)) as (master, loop):
        yield Served(master, loop)


def test_a_shorter_master_is_promised_nothing(bench: Bench, request: pytest.FixtureRequest) -> None:
    position, kept = bench.log.end, bench.log.lose_a_record()
    served: Served = request.getfixturevalue("served")
    with served.watched() as acknowledged:
        for _ in range(2):
            with pytest.raises(AboveMaximum, match="logtwin repair"):
                replicate_in_process(bench.spark, job_config(bench.lake, **served.options, on_loss="record"))
    assert max(acknowledged, default=0) <= kept
    assert bench.state().offset == position
    (row,) = bench.incidents().all()
    assert (row.found.condition, row.found.range.end) == (Condition.ABOVE_MAXIMUM, position)
    assert row.found.action is Action.REPORTED


def test_a_new_connection_to_another_log_ends_the_job(bench: Bench, served: Served) -> None:
    """Nothing is to be read and nothing to be started: only the session's connection breaks and is made anew."""
    register(bench.spark)
    end = bench.log.end
    with Link(served.master.ha_address) as link, served.watched() as acknowledged:
        options = {**served.options, "master": str(link.address)}
        with closing(Job(bench.spark, job_config(bench.lake, **options), available_now=False)) as job:
            job.start()
            run_until(job, lambda now: end in acknowledged)
            bench.log.flip(Offset(end - 1))
            link.meet(Fault.NONE)  # which breaks what was connected
            ended = run_until(job, lambda now: now.phase is Phase.FAILED)
    assert isinstance(ended.error, Rewritten)
    assert ended.incidents == {"rewritten": 1}
    assert ended.connected_since is None
