"""How long after the broker has stored a message it can be read in Delta, at 1,000 messages/s and a trigger of 1 s.

Ours is logtwin as a job runs it (defaults, with metadata), a slave over HA of a real RocketMQ broker. The competitor is
Spark's Kafka source and Delta's writer, from a real Kafka broker, with one partition: the fewest tasks and files that
it needs. Each turn has its own broker, table and producer process, and nothing else runs. Messages of 1 KB come for
20 s that do not count, for 60 s that do, and for a few more.

A message is stored at the row's ``store_timestamp``, or at Kafka's LogAppendTime: the clock of the broker, and so of
this machine, in ms. It is visible when the commit's file last changed as a file (ctime), which for both is the rename
into ``_delta_log``. The file was written some 25 ms earlier (mtime), and begun before that (the time inside it). p50
and p99 are over all rows of the measured time. All messages that were sent must be in the table once. The time until a
reader notices the new version is left out. logtwin's own Kafka path runs the same once, for the details.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.contest import Figure, Goal, Round, Settings, by_turns, percentile
from bench.contestants import config_of, spark_kafka_stream, sparks_own_files
from bench.payloads import create_topic
from bench.peers import lone_broker, running_session
from bench.steady_load import BODY_BYTES, RATE_PER_S, sent, steady_load
from pipeline.config.configuration import Config
from pipeline.demo.kafka_broker import VERSION as KAFKA_VERSION
from pipeline.job.replicate import Job
from pipeline.spark.session import NEEDED
from sinks.tables import KAFKA_LOG, LOG
from tests.peers.rocketmq import Broker

ROCKETMQ_VERSION = "5.5.0"
WARM_UP_S = 20
MEASURED_S = 60
AFTER_S = 3  # so that the last measured rows are under the same load as the others
TRIGGER = "1 second"  # logtwin's default, too
TOPIC = "fresh"
GOAL = Goal(most=0.7)
_MIB = 1024 * 1024
LARGE_FILES: dict[str, str | int] = {"mappedFileSizeCommitLog": 256 * _MIB, "mappedFileSizeConsumeQueue": 6_000_000}
_LEAST_RATE = 0.95
_THERE_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Course:
    """How long messages are sent, in seconds."""

    warm_up_s: int
    measured_s: int

    @property
    def seconds(self) -> int:
        return self.warm_up_s + self.measured_s + AFTER_S


@dataclass(frozen=True, slots=True)
class Freshness:
    """The result of one turn. `batch_ms` are medians of the parts of a batch, as Spark reports them."""

    p50_ms: float
    p99_ms: float
    rate_per_s: float
    commits: int
    batch_ms: dict[str, float]


@dataclass
class Contestant:
    """A contestant. `turn` gets the folder for a turn; `found` has the result of each."""

    turn: Callable[[Path], Freshness]
    found: list[Freshness] = field(default_factory=list)

    def p50_ms(self, folder: Path, number: int) -> float:
        one = self.turn(folder)
        shutil.rmtree(folder)
        self.found.append(one)
        print(f"freshness, round {number}, {folder.name}: {_shown(one)}", flush=True)
        return one.p50_ms

    def median(self, name: str) -> float:
        return float(statistics.median(getattr(one, name) for one in self.found))


def measure(settings: Settings) -> Iterator[Figure]:
    course = Course(settings.scaled(WARM_UP_S, least=3), settings.scaled(MEASURED_S, least=4))
    with running_session(settings.folder, heap=NEEDED["spark.driver.memory"]) as spark:
        ours, against, own_kafka = (
            Contestant(partial(way, spark, course)) for way in (over_ha, with_spark, over_own_kafka)
        )
        p50 = by_turns(
            settings.rounds,
            lambda number: ours.p50_ms(settings.folder / "ha", number),
            lambda number: against.p50_ms(settings.folder / "spark", number),
        )
        own_kafka.p50_ms(settings.folder / "own-kafka", 0)
    p99 = tuple(Round(one.p99_ms, other.p99_ms) for one, other in zip(ours.found, against.found, strict=True))
    details = _details(course, ours, against, own_kafka)
    for name, rounds in (("p50", p50), ("p99", p99)):
        yield Figure(
            work=f"freshness {name}, {RATE_PER_S:,} messages/s",
            ours="RocketMQ over HA → log",
            against="Spark's Kafka source → Delta append, same trigger",
            unit="ms",
            rounds=rounds,
            goal=GOAL,
            details=details,
        )


def _details(course: Course, ours: Contestant, against: Contestant, own_kafka: Contestant) -> dict[str, Any]:
    ways = {"ours": ours, "against": against, "own_kafka": own_kafka}
    names = ("p50_ms", "p99_ms", "rate_per_s", "commits")
    return {
        "warm_up_s": course.warm_up_s,
        "measured_s": course.measured_s,
        "body_bytes": BODY_BYTES,
        "trigger": TRIGGER,
        "versions": {"RocketMQ": ROCKETMQ_VERSION, "Kafka": KAFKA_VERSION},
        **{way: {name: one.median(name) for name in names} for way, one in ways.items()},
        "batch_ms": {way: one.found[-1].batch_ms for way, one in ways.items()},
    }


def over_ha(spark: SparkSession, course: Course, folder: Path) -> Freshness:
    with Broker(ROCKETMQ_VERSION, folder / "broker", LARGE_FILES) as broker:
        server, lake = f"127.0.0.1:{broker.port}", folder / "lake"
        at = {"master": f"127.0.0.1:{broker.ha_port}", "remoting": server}
        with steady_load("rocketmq", server, TOPIC, course.seconds) as load:
            watch = Watch(spark, load, Path(LOG.path(str(lake))), "store_timestamp")
            run_job(spark, config_of(lake, metadata=True, logs=[{"id": "rocketmq/bench", **at}]), watch)
    return watch.freshness(course)


def over_own_kafka(spark: SparkSession, course: Course, folder: Path) -> Freshness:
    lake = folder / "lake"
    with _kafka_load(spark, course, lake) as (server, watch):
        topic = {"id": f"kafka/bench/{TOPIC}", "servers": server}
        run_job(spark, config_of(lake, metadata=True, topics=[topic]), watch)
    return watch.freshness(course)


def with_spark(spark: SparkSession, course: Course, folder: Path) -> Freshness:
    lake = folder / "lake"
    with _kafka_load(spark, course, lake) as (server, watch), sparks_own_files(spark):
        query = spark_kafka_stream(spark, server, TOPIC, lake, {}).trigger(processingTime=TRIGGER).start()
        try:
            while not watch.is_done():
                query.awaitTermination(1)  # raises the error that ended the query
        finally:
            query.stop()
    return watch.freshness(course)


@contextmanager
def _kafka_load(spark: SparkSession, course: Course, lake: Path) -> Iterator[tuple[str, Watch]]:
    """Run a broker beside `lake` while messages are sent to its topic; yield its address, and the watch of `lake`."""
    with lone_broker(lake.parent) as server:
        create_topic(server, TOPIC, 1, {"message.timestamp.type": "LogAppendTime"})
        with steady_load("kafka", server, TOPIC, course.seconds) as load:
            yield server, Watch(spark, load, Path(KAFKA_LOG.path(str(lake))), "timestamp")


def run_job(spark: SparkSession, config: Config, watch: Watch) -> None:
    """Run the job of `config` until `watch` is done."""
    job = Job(spark, config, available_now=False)
    job.start()
    job.run(lambda progress: not watch.is_done(), poll_interval_s=_LOOK_EVERY_S)


@dataclass(frozen=True, slots=True)
class ArrivedRows:
    """The messages in a table, by commit and file; times are ms since 1970."""

    offsets: npt.NDArray[np.int64]
    stored_ms: npt.NDArray[np.float64]
    visible_ms: npt.NDArray[np.float64]


class Watch:
    """Watches a turn until all messages that `load` sent are in `table`.

    The column `stored` says when the broker stored a message.
    """

    def __init__(self, spark: SparkSession, load: subprocess.Popen[str], table: Path, stored: str) -> None:
        self._spark = spark
        self._load = load
        self._table = table
        self._stored = stored
        self._sent: int | None = None
        self._give_up_at_s = 0.0
        self._batch_ms: dict[str, float] = {}

    def is_done(self) -> bool:
        """Whether all messages are there. Does not read the table while they are sent.

        Raises SystemExit if they do not arrive in time.
        """
        if self._load.poll() is None:
            return False
        if self._sent is None:
            self._sent = sent(self._load)
            self._give_up_at_s = time.monotonic() + _THERE_WITHIN_S
        there = len(rows(self._table, self._stored).offsets)
        if there < self._sent and time.monotonic() > self._give_up_at_s:
            raise SystemExit(f"{self._table} has {there:,} rows, not {self._sent:,}")
        self._batch_ms = _batch_ms(self._spark)
        return there >= self._sent

    def freshness(self, course: Course) -> Freshness:
        """The result of the turn. Raises SystemExit if a row is there twice, or the producer did not keep its rate."""
        found = rows(self._table, self._stored)
        if not len(found.offsets) == len(np.unique(found.offsets)) == self._sent:
            raise SystemExit(f"{self._table} has {len(found.offsets):,} rows, not {self._sent}, each once")
        begin_ms = found.stored_ms.min() + course.warm_up_s * 1000
        is_measured = (found.stored_ms >= begin_ms) & (found.stored_ms < begin_ms + course.measured_s * 1000)
        rate_per_s = float(is_measured.sum()) / course.measured_s
        if rate_per_s < _LEAST_RATE * RATE_PER_S:
            raise SystemExit(f"the producer reached {rate_per_s:,.0f} messages/s, not {RATE_PER_S:,}")
        values = (found.visible_ms - found.stored_ms)[is_measured].tolist()
        commits = len(np.unique(found.visible_ms[is_measured]))
        return Freshness(percentile(values, 0.5), percentile(values, 0.99), rate_per_s, commits, self._batch_ms)


def rows(table: Path, stored: str) -> ArrivedRows:
    """The messages of TOPIC, by the Delta log of `table`; none if it is not there yet."""
    found = [one for path in sorted(table.glob("_delta_log/*.json")) for one in _rows_of(table, path, stored)]
    if not found:
        return ArrivedRows(np.empty(0, np.int64), np.empty(0), np.empty(0))
    return ArrivedRows(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def _rows_of(table: Path, commit: Path, stored: str) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """The offsets, storage times and visibility times of the rows in each file that `commit` added."""
    visible_ms = commit.stat().st_ctime_ns / 1e6
    for action in map(json.loads, commit.read_text().splitlines()):
        if "add" in action:
            read = pq.ParquetFile(table / unquote(action["add"]["path"])).read(columns=["topic", "offset", stored])
            read = read.filter(pc.equal(read["topic"], TOPIC))
            at = pc.cast(read[stored], pa.timestamp("ms", read[stored].type.tz), safe=False).cast(pa.int64())
            yield read["offset"].to_numpy(), at.to_numpy().astype(np.float64), np.full(len(read), visible_ms)


def _batch_ms(spark: SparkSession) -> dict[str, float]:
    """The median of each part of a batch with data, for the only query that runs."""
    batches = [
        one.durationMs for query in spark.streams.active for one in query.recentProgress if "addBatch" in one.durationMs
    ]
    names = dict.fromkeys(name for one in batches for name in one)
    return {name: statistics.median(one[name] for one in batches if name in one) for name in names}


def _shown(one: Freshness) -> str:
    return (
        f"p50 {one.p50_ms:,.0f} ms, p99 {one.p99_ms:,.0f} ms, {one.commits} commits, {one.rate_per_s:,.0f} messages/s"
    )
