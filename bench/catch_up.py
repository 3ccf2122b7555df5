"""Catching up: a RocketMQ log on disk with logtwin, beside the same messages with Spark's Kafka source and Delta.

For bodies of three sizes a log is written, and its first messages are sent to a topic: the same bodies, KEYS as keys.
logtwin reads segment files. Spark reads from a real broker, which takes its share of the same two cores, and has the
records in batches of 16 KiB, as producers send by default. Files and topic are in the page cache. Both write
micro-batches of the same number of records, in one session of two cores, to Parquet with zstd. The steady state is
compared: records/s by the times in each table's Delta log, without the first batch and the last one, after a round of
each that warms up the JVM. logtwin's rows have every field of a message, and are checksummed, synced and entered in its
ledger; the topic's have Kafka's columns. This is measured with two topics. The records of one have one small header;
those of the other have the message's properties as headers, all but KEYS, so that both tables hold the same of a
message as far as they have columns for it. Neither log nor topic has compressed bodies, although RocketMQ's producers
would compress 64 KB: the cost of decompression is left out.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.breakdown import Breakdown
from bench.contest import Figure, Goal, Round, Settings, warmed_by_turns
from bench.contestants import config_of
from bench.payloads import LOG_ID, delete_topic, fill_topic, rows, write_log
from bench.peers import CORES, lone_broker, running_session

PARTITIONS = 6
LOG_BATCHES = 4
TOPIC_BATCHES = 4
LEFT_OUT = 1  # batches: the first one of a query waits for its workers
END_LEFT_OUT = 1  # and the last one, in which Spark's consumers wait for records that do not come
OURS = "RocketMQ log by path → log"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the bodies. A batch takes about 1,030 MB of log, the default; 790 with 64 KB; 460 with 128 B, mostly
    headers."""

    name: str
    body_bytes: int
    batch_records: int
    goal: Goal


SIZES = (
    Size("1 KB", 1024, 804_000, Goal(least=4)),
    Size("128 B", 128, 1_200_000, Goal(least=3)),
    Size("64 KB", 64 * 1024, 12_000, Goal(least=3)),
)


def measure(settings: Settings) -> Iterator[Figure]:
    with running_session(settings.folder) as spark, lone_broker(settings.folder) as server:
        for size in SIZES:
            log = Log.written(settings, size)
            yield _against_spark(Contest(spark, settings, log), server)
            yield _against_spark(Contest(spark, settings, log), server, has_properties=True)
            shutil.rmtree(log.folder)


def _against_spark(contest: Contest, server: str, *, has_properties: bool = False) -> Figure:
    log = contest.log
    topic = f"bodies-{log.size.body_bytes}{'-properties' * has_properties}"
    fill_topic(server, topic, log.folder, PARTITIONS, count=log.topic_records, has_properties=has_properties)
    rounds = warmed_by_turns(
        contest.settings.rounds, contest.ours, lambda number: contest.spark_kafka(number, server, topic)
    )
    delete_topic(server, topic)
    work = f"catch-up, messages of {log.size.name}{', properties as headers' * has_properties}"
    return contest.figure(work, "Spark's Kafka source → Delta", rounds, log.size.goal)


@dataclass(frozen=True, slots=True)
class Log:
    """The segment files for one size: LOG_BATCHES batches of `batch_records`, up to the offset `end`."""

    size: Size
    folder: Path
    batch_records: int
    end: int

    @classmethod
    def written(cls, settings: Settings, size: Size) -> Log:
        folder = settings.folder / f"log-{size.body_bytes}"
        batch_records = settings.scaled(size.batch_records, least=200)
        return cls(size, folder, batch_records, write_log(folder, size.body_bytes, batch_records * LOG_BATCHES))

    @property
    def records(self) -> int:
        return self.batch_records * LOG_BATCHES

    @property
    def topic_records(self) -> int:
        return self.batch_records * TOPIC_BATCHES

    @property
    def batch_bytes(self) -> int:
        return -(-self.end // LOG_BATCHES)


class Contest:
    """The contest for one figure: logtwin and its competitor over one log. Each gets the number of its round."""

    def __init__(self, spark: SparkSession, settings: Settings, log: Log) -> None:
        self.settings = settings
        self.log = log
        self.lake = settings.folder / "lake"
        """The folder of the table, empty before each turn; `ended` removes it."""
        self._breakdown = Breakdown(spark, left_out=LEFT_OUT, end_left_out=END_LEFT_OUT)

    def ours(self, number: int) -> float:
        log = {"id": str(LOG_ID), "path": str(self.log.folder), "max_bytes_per_trigger": self.log.batch_bytes}
        rate = self._breakdown.ours(config_of(self.lake, logs=[log]), rows(self.log.folder, self.log.records))
        return self.ended(number, "logtwin", rate)

    def spark_kafka(self, number: int, server: str, topic: str) -> float:
        log = self.log
        rate = self._breakdown.spark_kafka(server, topic, self.lake, log.topic_records, batch_records=log.batch_records)
        return self.ended(number, "Spark's Kafka source", rate)

    def ended(self, number: int, name: str, rate: float) -> float:
        print(f"{self.log.size.name}, round {number + 1}: {name} {rate:,.0f} records/s", flush=True)
        shutil.rmtree(self.lake)
        return rate

    def figure(self, work: str, against: str, rounds: tuple[Round, ...], goal: Goal) -> Figure:
        return Figure(
            work=work,
            ours=OURS,
            against=against,
            unit="records/s",
            rounds=rounds,
            goal=goal,
            details={**self._sizes(), **self._megabytes(rounds), **self._breakdown.details()},
        )

    def _sizes(self) -> dict[str, Any]:
        log = self.log
        return {
            "body bytes": log.size.body_bytes,
            "bytes of a message in the log": round(log.end / log.records),
            "messages in the log": log.records,
            "messages in the topic": log.topic_records,
            "messages in a batch": log.batch_records,
            "batches left out": [LEFT_OUT, END_LEFT_OUT],
            "cores": CORES,
        }

    def _megabytes(self, rounds: tuple[Round, ...]) -> dict[str, Any]:
        """The medians in MB/s."""
        ours = statistics.median(one.ours for one in rounds)
        against = statistics.median(one.against for one in rounds)
        body_mb = self.log.size.body_bytes / 1e6
        return {
            "ours, MB/s of the log": round(ours * self.log.end / self.log.records / 1e6, 1),
            "ours, MB/s of bodies": round(ours * body_mb, 1),
            "against, MB/s of bodies": round(against * body_mb, 1),
        }
