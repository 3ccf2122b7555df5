"""A live run: masters that get messages at a steady rate, and what replicates them, measured while it does.

The masters and their producer are one process (`bench.load`), which sends messages of 1 KB to one log after the other.
Once every log has its first commit, some time passes. Then are measured: the records committed, how long after it was
stored a message became visible, the time of batches, and the processor time and memory of the processes that replicate.
The last measured messages are under the same load as the others. Then nothing is sent for 10 s, to measure the
processor time of an idle job. All messages that were sent must be in the table once.

A message is stored at the row's ``store_timestamp``, or at Kafka's LogAppendTime: the clock of the broker, and so of
this machine, in ms. `bench.arrived` says when it is visible. The time until a reader notices the new version is left
out.
"""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow.fs as pafs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.arrived import TOPIC, Arrived, rates
from bench.contest import Figure, Goal, Round, Settings
from bench.contestants import config_of, spark_kafka_stream, sparks_own_files
from bench.load import running_load
from pipeline.config.configuration import Config
from pipeline.job.replicate import Job
from pipeline.job.replication import Replication
from pipeline.monitoring.progress import Phase, Progress
from sinks.batch.proof import BatchStep
from sinks.storage.place import open_folder
from sinks.tables import KAFKA_LOG, LOG, TableSpec
from tests.resident import below, held_mib

RATE_PER_S = 2000
TRIGGER = "1 second"  # logtwin's default, too
IDLE_S = 10
AFTER_S = 3
PATIENCE_S = 240.0
_STOP_WITHIN_S = 120.0
_SETTLE_S = 2.0
_LOOK_EVERY_S = 0.05
_SAMPLE_EVERY_S = 2.0


def logs_at(addresses: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The part of a configuration for masters with these normal and HA addresses."""
    return {
        "logs": [
            {"id": f"rocketmq/log-{number}", "remoting": remoting, "master": ha}
            for number, (remoting, ha) in enumerate(addresses)
        ]
    }


def topic_at(server: str) -> dict[str, Any]:
    """The part of a configuration for TOPIC of this broker."""
    return {"topics": [{"id": f"kafka/bench/{TOPIC}", "servers": server}]}


@dataclass(frozen=True, slots=True)
class Masters:
    """Masters of a kind of `bench.sender`: `listed` makes their part of a configuration of what the process says.

    `table` gets their records, whose column `stored` says when the master stored them.
    """

    kind: str
    listed: Callable[[Any], dict[str, Any]]
    table: TableSpec
    stored: str


EMBEDDED = Masters("embedded", logs_at, LOG, "store_timestamp")
ROCKETMQ = Masters("broker", logs_at, LOG, "store_timestamp")
ORDERS = Masters("orders", logs_at, LOG, "store_timestamp")
KAFKA = Masters("partitions", topic_at, KAFKA_LOG, "timestamp")


@dataclass(frozen=True, slots=True)
class Course:
    """How long messages are sent, in seconds, and how many a second."""

    warm_up_s: int
    measured_s: int
    rate_per_s: int = RATE_PER_S

    def scaled(self, settings: Settings) -> Course:
        warm_up_s, measured_s = settings.scaled(self.warm_up_s, least=2), settings.scaled(self.measured_s, least=4)
        return Course(warm_up_s, measured_s, self.rate_per_s)


@dataclass(frozen=True, slots=True)
class Live:
    """The result of one run. `first_s` is the time from the start until the first commit, `start_s` until each log has
    one. `records_per_s` were committed in `measured_s`, `stored_per_s` came in; `logs_in_commit` is the median.
    `batch_ms` are medians of the parts of a batch, as Spark reports them, `step_ms` means of logtwin's steps.
    `delta_log_bytes` are those of the commits to all tables, for a commit of records. `cores` are processor seconds a
    second by kind of process, `held_mib` is the memory of all processes of a kind, without mapped files. `messages` are
    all that were sent.
    """

    messages: int
    measured_s: float
    records_per_s: float
    stored_per_s: float
    p50_ms: float
    p99_ms: float
    commits: int
    logs_in_commit: float
    first_s: float
    start_s: float
    cores: Mapping[str, float]
    idle_cores: Mapping[str, float]
    batch_ms: Mapping[str, float]
    step_ms: Mapping[str, float]
    delta_log_bytes: int
    held_mib: Mapping[str, int]


class Running(ABC):
    """What replicates, while it runs."""

    @abstractmethod
    def check(self) -> None:
        """Raises the error that has ended it, and SystemExit if a log fails."""

    @abstractmethod
    def has_begun(self) -> bool:
        """Whether there is a commit."""

    def have_all_begun(self) -> bool:
        """Whether each log has a commit."""
        return self.has_begun()

    def progress(self) -> list[Progress]:
        """Of logtwin's logs."""
        return []

    def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true`. Raises what `check` raises, and SystemExit if it takes too long."""
        give_up_at_s = time.monotonic() + PATIENCE_S
        while not is_true():
            self.check()
            if time.monotonic() > give_up_at_s:
                at = ", ".join(f"{one.log_id} {one.phase} at {one.position}" for one in self.progress())
                raise SystemExit(f"it does not get on: {at}")
            time.sleep(_LOOK_EVERY_S)


class RunningJob(Running):
    """A job of logtwin, in another thread. `begun` is set once there is a commit.

    To look at the progress of many logs all the time would slow the job down: 0.1 ms for each, which a core of the two
    would have to give for a thousand. So a log that is where it is waited for is not looked at again.
    """

    def __init__(self, job: Job, end: Future[None], begun: threading.Event) -> None:
        self._job = job
        self._end = end
        self._begun = begun
        self._not_begun = list(job.logs)

    def check(self) -> None:
        if self._end.done():
            self._end.result()
        failed = [str(one.error) for one in self._job.logs if one.phase is Phase.FAILED]
        if failed:
            raise SystemExit(failed[0])

    def has_begun(self) -> bool:
        return self._begun.is_set()

    def have_all_begun(self) -> bool:
        return _all_are(self._not_begun, _has_begun)

    def progress(self) -> list[Progress]:
        return self._job.progress()

    def until_at(self, ends: Sequence[int]) -> None:
        """Wait until each log has committed up to its end in `ends`. Raises as `until`."""
        end_of = {one.id: end for one, end in zip(self._job.logs, ends, strict=True)}
        left = list(self._job.logs)
        self.until(lambda: _all_are(left, lambda one: (one.position or 0) >= end_of[one.log_id]))


def _has_begun(one: Progress) -> bool:
    return one.commits > 0 and all((at.position or 0) > 0 for at in one.partitions.values())


def _all_are(left: list[Replication], is_there: Callable[[Progress], bool]) -> bool:
    """Whether all are; takes those out of `left` that are, up to the first that is not."""
    while left and is_there(left[-1].progress()):
        left.pop()
    return not left


class RunningQuery(Running):
    """A query of Spark's own."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def check(self) -> None:
        if (error := self._query.exception()) is not None:
            raise error

    def has_begun(self) -> bool:
        return any(one.numInputRows for one in self._query.recentProgress)


@contextmanager
def running(
    spark: SparkSession, config: Config, on_step: Callable[[BatchStep], None] | None = None
) -> Iterator[RunningJob]:
    """Run the job of `config` in the `with` block; it stops between two batches. `on_step` is as in `Job`."""
    begun = threading.Event()

    def stepped(step: BatchStep) -> None:
        if step is BatchStep.COMMIT:
            begun.set()
        if on_step is not None:
            on_step(step)

    job = Job(spark, config, available_now=False, on_step=stepped)
    job.start()
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(job.run)
        try:
            yield RunningJob(job, end, begun)
        finally:
            job.request_stop()
            end.result(_STOP_WITHIN_S)


Way = Callable[[SparkSession, str, Masters, Any], AbstractContextManager[Running]]
"""Replicates masters, of which the process says where they are, into a new warehouse, in the `with` block."""


def with_logtwin(
    spark: SparkSession, lake: str, masters: Masters, at: Any, on_step: Callable[[BatchStep], None] | None = None
) -> AbstractContextManager[Running]:
    """A job as people run it: defaults, with metadata."""
    return running(spark, config_of(lake, metadata=True, **masters.listed(at)), on_step)


@contextmanager
def with_spark(spark: SparkSession, lake: str, masters: Masters, at: Any) -> Iterator[Running]:
    """Spark's Kafka source and Delta's writer, with the same trigger."""
    with sparks_own_files(spark):
        query = spark_kafka_stream(spark, at, TOPIC, Path(lake), {}).trigger(processingTime=TRIGGER).start()
        try:
            yield RunningQuery(query)
        finally:
            query.stop()


def live(
    spark: SparkSession,
    settings: Settings,
    masters: Masters,
    count: int,
    course: Course,
    way: Way = with_logtwin,
    *,
    lake: str | None = None,
    answered: Sequence[float] | None = None,
) -> Live:
    """Run `count` logs, into a new warehouse of its own, or `lake`; `answered` is as in `Arrived`.

    Raises SystemExit unless every message that was sent is in the table once.
    """
    folder, course = settings.folder / "live", course.scaled(settings)
    lake = lake or str(folder / "lake")
    arrived = Arrived(masters.table.path(lake), masters.stored, answered)
    with running_load(masters.kind, folder, count, course.rate_per_s, TOPIC) as load:
        started_s = time.monotonic()
        with way(spark, lake, masters, load.masters) as run:
            run.until(run.has_begun)
            first_s = time.monotonic() - started_s
            run.until(run.have_all_begun)
            start_s = time.monotonic() - started_s
            time.sleep(course.warm_up_s)
            begin_ms, before = time.time() * 1000, run.progress()
            cores = _cores_over(course.measured_s, load.pid)
            held = _memory(load.pid)
            end_ms, after = time.time() * 1000, run.progress()
            batch_ms = _batch_ms(spark, begin_ms)
            time.sleep(AFTER_S)
            stored = load.stop_sending()
            run.until(lambda: arrived.look() >= stored)
            time.sleep(_SETTLE_S)
            idle_cores = _cores_over(settings.scaled(IDLE_S, least=2), load.pid)
    found = rates(arrived.each_once(stored), begin_ms, end_ms)
    one = Live(
        messages=stored,
        first_s=round(first_s, 1),
        start_s=round(start_s, 1),
        cores=cores,
        idle_cores=idle_cores,
        batch_ms=batch_ms,
        step_ms=_step_ms(before, after),
        delta_log_bytes=round(_delta_log_bytes(lake, begin_ms, end_ms) / max(found["commits"], 1)),
        held_mib=held,
        **found,
    )
    shutil.rmtree(folder)
    print(f"live, {masters.kind}, {count}: {one}", flush=True)
    return one


def bound(work: str, ours: str, unit: str, value: float, most: float, **details: Any) -> Figure:
    """The figure of a `value` that may be `most` at most."""
    against, rounds = f"the goal of {most:g} {unit}", (Round(value, float(most)),)
    return Figure(work=work, ours=ours, against=against, unit=unit, rounds=rounds, goal=Goal(most=1), details=details)


def compared(
    work: str, ours: str, against: str, *found: tuple[str, str, Goal, float, float], **details: Any
) -> Iterator[Figure]:
    """A figure for each of `found`: what it is, the unit, the goal, both values. The first has the `details`."""
    for what, unit, goal, *both in found:
        common: dict[str, Any] = {"ours": ours, "against": against, "unit": unit, "goal": goal}
        yield Figure(work=f"{work}, {what}", rounds=(Round(*both),), details=details, **common)
        details = {}


def _delta_log_bytes(lake: str, begin_ms: float, end_ms: float) -> int:
    """Of the commits of that time to all tables."""
    filesystem, folder = open_folder(lake)
    commits = (
        one
        for one in filesystem.get_file_info(pafs.FileSelector(folder, recursive=True))
        if "/_delta_log/" in one.path and one.path.endswith(".json")
    )
    return sum(one.size for one in commits if begin_ms <= one.mtime_ns / 1e6 < end_ms)


def _batch_ms(spark: SparkSession, begin_ms: float) -> dict[str, float]:
    """The median of each part of a batch with data that has ended since then, for the only query that runs."""
    batches = [
        one.durationMs
        for query in spark.streams.active
        for one in query.recentProgress
        if "addBatch" in one.durationMs
        and datetime.fromisoformat(one.timestamp).timestamp() * 1000 + one.durationMs["triggerExecution"] >= begin_ms
    ]
    names = dict.fromkeys(name for one in batches for name in one)
    return {name: statistics.median(one[name] for one in batches if name in one) for name in names}


def _memory(aside: int) -> dict[str, int]:
    """The memory, in MiB, of each program's processes, without the process `aside`."""
    mib: Counter[str] = Counter()
    for program, held in held_mib(os.getpid(), aside=aside):
        mib[program] += round(held)
    return dict(mib)


def _step_ms(before: list[Progress], after: list[Progress]) -> dict[str, float]:
    """The mean time of each step of a batch between `before` and `after`, by the names of `sinks.batch.proof`."""
    commits = sum(one.commits for one in after) - sum(one.commits for one in before)
    spent_s: Counter[str] = Counter()
    for logs, sign in ((after, 1), (before, -1)):
        for one in logs:
            spent_s.update({step.value: sign * seconds for step, seconds in one.stage_s.items()})
    return {name: round(seconds / max(commits, 1) * 1000, 1) for name, seconds in spent_s.items()}


class ProcessorTime:
    """Adds up the processor time of processes that come and go, from looks at those that there are.

    What a process has taken stays in the sum when it ends, as far as the last look at it saw: no sum ever goes down.
    """

    def __init__(self) -> None:
        self._begin_s: dict[Hashable, float] | None = None
        self._last: dict[Hashable, tuple[str, float]] = {}

    def look(self, now: Mapping[Hashable, tuple[str, float]]) -> None:
        """Take the kind of each process and the seconds that it has taken since its start.

        Those of the first look count from then on, later ones from their start.
        """
        if self._begin_s is None:
            self._begin_s = {process: seconds for process, (_, seconds) in now.items()}
        self._last.update(now)

    def spent_s(self) -> dict[str, float]:
        """The seconds of each kind since the first look."""
        spent_s: dict[str, float] = defaultdict(float)
        for process, (kind, seconds) in self._last.items():
            spent_s[kind] += seconds - (self._begin_s or {}).get(process, 0.0)
        return dict(spent_s)


def _cores_over(seconds: float, aside: int) -> dict[str, float]:
    """Wait `seconds`; the processor seconds a second that our processes took meanwhile, without the process `aside`."""
    begin_s, spent = time.monotonic(), ProcessorTime()
    spent.look(_processor_s(aside))
    while (left_s := begin_s + seconds - time.monotonic()) > 0:
        time.sleep(min(left_s, _SAMPLE_EVERY_S))
        spent.look(_processor_s(aside))
    taken_s = time.monotonic() - begin_s
    cores = {kind: round(spent_s / taken_s, 3) for kind, spent_s in spent.spent_s().items()}
    return dict.fromkeys(("driver", "jvm", "workers"), 0.0) | cores


def _processor_s(aside: int) -> dict[Hashable, tuple[str, float]]:
    """The kind of each process, and its own processor seconds: driver's Python, JVM, and Spark's Python processes."""
    ours = psutil.Process()
    found: dict[Hashable, tuple[str, float]] = {}
    for process in (ours, *below(ours, aside)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            kind = "driver" if process == ours else "jvm" if Path(process.exe()).name == "java" else "workers"
            found[process] = kind, times.user + times.system
    return found
