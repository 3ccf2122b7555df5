"""The rhythm of metadata: when it is fetched, what a failure does, how it ends. And once with a master and tables."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, MetadataConfig, parse
from pipeline.job import metadata_sync
from pipeline.job.metadata_sync import MetadataSync, next_due
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase, Progress
from sources.access.spread import Spread
from sources.datasource import register
from sources.errors import MasterError, MasterSilent, MasterUnreachable, ReplicaError
from sources.metadata import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    DISTER_SERVICES,
    MESSAGE_REQUEST_MODES,
    TOPICS,
    FetchedMetadata,
    MetadataKind,
)
from sources.offsets import LogId, Offset
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.producer.workload import send_workload, workload
from tests.log_lines import said_by
from tests.patience import PATIENCE_S, wait_until
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.running import job_config, run_until
from tests.pipeline.sample_progress import PROGRESS
from tests.pipeline.waiting_clock import WaitingClock, WaitingEvent

LOG = LogId("rocketmq", "broker-a")
NOTHING = pa.table({})
RUNNING = replace(
    PROGRESS, received=Offset(700), position=Offset(700), acknowledged=Offset(600), master_maximum=Offset(1000)
)


class Tables:
    """In the place of `MetadataTable`: notes what is recorded, when, of which kind."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, float]] = []
        self.error: Exception | None = None
        self.took_s = 0.0
        self.time: Any = time

    def of(self, spark: object, warehouse: str, log_id: LogId, kind: MetadataKind) -> Any:
        return SimpleNamespace(record=partial(self._record, kind.name))

    def _record(self, name: str, items: pa.Table, fetched_at: datetime, version: int) -> int:
        if self.error is not None:
            raise self.error
        self.recorded.append((name, self.time.monotonic()))
        self.time.sleep(self.took_s)
        return 1


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Tables:
    noted = Tables()
    monkeypatch.setattr(metadata_sync, "MetadataTable", noted.of)
    return noted


def rhythm(first_after_s: float, every_s: float) -> Config:
    timing = {"first_after_s": first_after_s, "every_s": every_s}
    return parse({"warehouse": "unused", "metadata": timing}, where="test")


def sync(
    fetch: Callable[[], Iterator[FetchedMetadata]], config: Config, progress: Callable[[], Progress] = lambda: RUNNING
) -> MetadataSync:
    return MetadataSync(cast(SparkSession, None), config, LOG, fetch, progress)


@contextmanager
def fetching(one: MetadataSync) -> Iterator[None]:
    one.start()
    try:
        yield
    finally:
        one.stop()


def topics_only() -> Iterator[FetchedMetadata]:
    yield FetchedMetadata(TOPICS, NOTHING)


class Hanging:
    """A fetch whose answer does not come before the test says so."""

    def __init__(self) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> Iterator[FetchedMetadata]:
        self.asked.set()
        self.answer.wait(PATIENCE_S)
        yield from topics_only()


@pytest.mark.parametrize(
    ("due", "now", "expected"),
    [
        (10.0, 10.0, 70.0),  # at once
        (10.0, 10.5, 70.0),  # some work does not shift the next one
        (10.0, 69.9, 70.0),
        (10.0, 75.0, 130.0),  # the beat at 70 fell out
        (10.0, 400.0, 430.0),
    ],
)
def test_the_rhythm_is_fixed(due: float, now: float, expected: float) -> None:
    """MS-14."""
    assert next_due(due, now, 60.0) == expected


def test_the_first_fetch_comes_after_its_time_and_the_next_ones_in_rhythm(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MS-14, MS-15."""
    tables.time = clock = WaitingClock()
    monkeypatch.setattr(metadata_sync, "time", clock)
    monkeypatch.setattr(metadata_sync, "threading", SimpleNamespace(Event=lambda: WaitingEvent(clock), Thread=Thread))
    monkeypatch.setattr(metadata_sync, "_FIRST", others := Spread(0.05))
    for _ in range(2):  # two other logs, which began before
        others.moment_s(clock.monotonic())
    with fetching(sync(topics_only, rhythm(0.2, 0.2))):
        wait_until(lambda: len(tables.recorded) >= 3, "three fetches")
    assert [at for _, at in tables.recorded][:3] == pytest.approx((0.3, 0.5, 0.7))


def test_a_kind_that_fails_is_said_once_and_the_others_go_on(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    """MS-17."""
    healed = threading.Event()

    def fetch() -> Iterator[FetchedMetadata]:
        yield FetchedMetadata(TOPICS, NOTHING)
        yield FetchedMetadata(CONSUMER_OFFSETS, NOTHING if healed.is_set() else MasterSilent("no answer"))
        yield FetchedMetadata(DELAY_OFFSETS, NOTHING)
        yield FetchedMetadata(MESSAGE_REQUEST_MODES, None)

    with caplog.at_level(logging.WARNING), fetching(sync(fetch, rhythm(0, 0.01))):
        wait_until(lambda: len(tables.recorded) >= 10, "ten fetches")
        healed.set()
        wait_until(lambda: "fetched again" in caplog.text, "the kind that failed")
    names = [name for name, _ in tables.recorded]
    assert names[:4] == ["topics", "delay_offsets"] * 2
    assert "message_request_modes" not in names
    failed, again = said_by(metadata_sync.__name__, caplog)
    assert "rocketmq/broker-a" in failed
    assert "no answer" in failed
    assert "consumer_offsets" in failed
    assert again == "rocketmq/broker-a: the consumer_offsets are fetched again"


def test_a_master_that_is_away_is_one_warning(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    away = MasterUnreachable("cannot connect", hint="Check that it runs.")
    fetch = Mock(return_value=[FetchedMetadata(kind, away) for kind in (TOPICS, CONSUMER_OFFSETS, DELAY_OFFSETS)])
    with fetching(sync(fetch, rhythm(0, 0.01))):
        wait_until(lambda: fetch.call_count > 3, "three fetches")
    assert said_by(metadata_sync.__name__, caplog) == [
        "rocketmq/broker-a: cannot connect. Check that it runs. "
        "(until it works again the warehouse keeps what it has of: topics, consumer_offsets, delay_offsets)"
    ]


@pytest.mark.parametrize(
    ("of", "kind", "words"),
    [
        ("fetch", ZeroDivisionError, "nobody thought of it"),
        ("table", ReplicaError, "the disk is full"),
        ("table", MasterError, "version 199 is older"),  # DI-116: the table knows the recorded one
    ],
)
def test_a_failure_is_said_once_and_does_not_end_it(
    tables: Tables, caplog: pytest.LogCaptureFixture, of: str, kind: type[Exception], words: str
) -> None:
    asked = threading.Semaphore(0)
    is_failing = True
    tables.error = kind(words) if of == "table" else None

    def fetch() -> Iterator[FetchedMetadata]:
        asked.release()
        if is_failing and of == "fetch":
            raise kind(words)
        yield FetchedMetadata(DISTER_SERVICES, NOTHING, 199)

    with caplog.at_level(logging.WARNING), fetching(sync(fetch, rhythm(0.01, 0.01))):
        for _ in range(3):
            assert asked.acquire(timeout=PATIENCE_S)
        assert tables.recorded == []
        tables.error, is_failing = None, False
        wait_until(lambda: "fetched again" in caplog.text, "that it works again")
    assert tables.recorded != []
    said = said_by(metadata_sync.__name__, caplog)
    assert [words in one for one in said] == [True, False]


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.STOPPED, Phase.DONE])
def test_it_ends_with_its_log_and_a_waiting_log_has_not_ended(tables: Tables, phase: Phase) -> None:
    """MS-11: and not while that waits. One that another job took over has failed; that job writes its metadata now."""
    now = [replace(RUNNING, phase=Phase.WAITING)]
    with fetching(sync(topics_only, rhythm(0, 0.01), lambda: now[0])):
        wait_until(lambda: len(tables.recorded) > 2, "three fetches")
        now[0] = replace(RUNNING, phase=phase)
        wait_until(lambda: not _is_alive(), "the end of the thread")
        recorded = len(tables.recorded)
    assert len(tables.recorded) == recorded


def test_nothing_is_written_once_its_log_has_ended_meanwhile(tables: Tables) -> None:
    now = [RUNNING]

    def fetch() -> Iterator[FetchedMetadata]:
        now[0] = replace(RUNNING, phase=Phase.FAILED)
        yield FetchedMetadata(TOPICS, NOTHING)

    with fetching(sync(fetch, rhythm(0, 0.01), lambda: now[0])):
        wait_until(lambda: not _is_alive(), "the end of the thread")
    assert tables.recorded == []


def test_stop_is_bounded_and_a_late_answer_is_dropped(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """MS-11."""
    monkeypatch.setattr(metadata_sync, "STOP_TIMEOUT_S", 0.2)
    hangs = Hanging()
    with fetching(sync(hangs, rhythm(0, 1))):
        assert hangs.asked.wait(PATIENCE_S)
    assert _is_alive()  # nobody has waited for it
    hangs.answer.set()
    wait_until(lambda: not _is_alive(), "the end of the thread")
    assert tables.recorded == []


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.DONE])
def test_at_a_good_end_it_is_fetched_once_more(tables: Tables, phase: Phase) -> None:
    """Also where the job ended before its first fetch was due; and where its log has ended already."""
    running = sync(topics_only, rhythm(60, 60), lambda: replace(RUNNING, phase=phase))
    running.start()
    running.finish(time.monotonic() + PATIENCE_S)
    assert [name for name, _ in tables.recorded] == ["topics"]
    running.stop()
    assert not _is_alive()
    assert len(tables.recorded) == 1


def test_the_last_fetch_keeps_nobody_longer_than_it_may(tables: Tables) -> None:
    hangs = Hanging()

    def is_asking() -> bool:
        return any("last metadata" in one.name for one in threading.enumerate())

    running = sync(hangs, rhythm(60, 60))
    running.start()
    running.finish(time.monotonic() + 0.2)
    assert is_asking()
    hangs.answer.set()
    wait_until(lambda: not is_asking(), "the end of the thread")
    assert tables.recorded == []


def test_each_tick_says_how_far_master_and_replica_are_apart(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    """MS-19."""
    with caplog.at_level(logging.DEBUG), fetching(sync(topics_only, rhythm(0, 60))):
        wait_until(lambda: len(tables.recorded) == 1, "a fetch")
    said = "rocketmq/broker-a: the master is at 1000, the replica at 700, 300 bytes behind; acknowledged 600"
    assert caplog.messages.count(said) == 1


def _is_alive(log_id: object = LOG) -> bool:
    return any(thread.name == f"metadata of {log_id}" for thread in threading.enumerate())


@pytest.mark.spark
def test_a_job_fetches_metadata_beside_its_log(spark: SparkSession, tmp_path: Path) -> None:
    """MS-11, MS-16: the tables come by themselves, while the log is replicated."""
    with embedded_master(tmp_path / "store") as served, replicating(spark, tmp_path / "lake", served) as job:
        send_workload(served.master.address, workload(1), count=200)
        wait_until((tmp_path / f"lake/topics/_delta_log/{1:020d}.json").exists, "the topics")
        run_until(job, lambda progress: progress.position == served.end)
    found = DeltaTable(str(tmp_path / "lake/topics")).to_pyarrow_table().to_pylist()
    assert "orders" in {row["topic"] for row in found if row["is_current"]}
    assert not _is_alive("rocketmq/test")


@pytest.mark.spark
def test_data_does_not_wait_for_metadata_that_does_not_come(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MS-11: a fetch that hangs delays no commit and no acknowledgement."""
    monkeypatch.setattr(RocketMQLog, "metadata", hangs := Hanging())
    monkeypatch.setattr(metadata_sync, "STOP_TIMEOUT_S", 0.1)
    with embedded_master(tmp_path / "store") as served, replicating(spark, tmp_path / "lake", served) as job:
        assert hangs.asked.wait(PATIENCE_S)
        send_workload(served.master.address, workload(1), count=200)
        reached = run_until(job, lambda progress: progress.acknowledged == served.end != 0)
        assert reached.acknowledged == reached.position
    hangs.answer.set()


@contextmanager
def replicating(spark: SparkSession, warehouse: Path, served: Served) -> Iterator[Job]:
    """A job of one log, started; metadata is fetched from the first moment on."""
    register(spark)
    config = job_config(warehouse, **served.options)
    config = config.model_copy(update={"metadata": MetadataConfig(first_after_s=0, every_s=0.2)})
    job = Job(spark, config, available_now=False)
    job.start()
    try:
        yield job
    finally:
        job.close()
