"""A topic into Delta: logtwin's path into kafka_log against Spark's own Kafka source.

A real broker holds records of 1 KB in six partitions, in batches of 16 KiB, as producers send by default: a topic of
incompressible records without compression, and one of JSON with lz4. Both contestants read it in micro-batches of the
same size into a table of the same columns and properties, Parquet with zstd, in one session of two cores. The steady
state is compared: records/s by the times in each table's Delta log, without the first batches and the last one, after a
round of each that warms up the JVM.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from bench.breakdown import Breakdown
from bench.contest import Figure, Goal, Settings, warmed_by_turns
from bench.contestants import config_of
from bench.payloads import create_topic
from bench.peers import CORES, lone_broker, running_session
from pipeline.demo.kafka_broker import VERSION

PARTITIONS = 6
RECORDS = 432_000
BATCHES = 9
LEFT_OUT = 3  # batches, in which JVM and Python workers warm up
END_LEFT_OUT = 1  # and the last one, in which Spark's consumers wait for records that do not come
GOAL = Goal(least=1.5)
_VALUE_BYTES = 1000
_PIECE_BYTES = 100


def random_values(records: int) -> Iterator[bytes]:
    chance = random.Random(7)
    for _ in range(records):
        yield chance.randbytes(_VALUE_BYTES)


def json_values(records: int) -> Iterator[bytes]:
    """JSON objects with numbers that differ, and text made from a few hundred words."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnoprstuvw", k=chance.randrange(3, 11))) for _ in range(400)]
    pieces = [" ".join(chance.choices(words, k=20))[:_PIECE_BYTES] for _ in range(2000)]
    for number in range(records):
        head = {"order": number, "customer": chance.randrange(10**6), "amount": round(chance.uniform(1, 500), 2)}
        text = json.dumps({**head, "note": " ".join(chance.choices(pieces, k=_VALUE_BYTES // _PIECE_BYTES))})
        yield text[: _VALUE_BYTES - 2].encode() + b'"}'


TOPICS: dict[str, tuple[Callable[[int], Iterator[bytes]], str | None]] = {
    "random": (random_values, None),
    "json-lz4": (json_values, "lz4"),
}


def measure(settings: Settings) -> Iterator[Figure]:
    batch_records = settings.scaled(RECORDS // BATCHES, least=200)
    with running_session(settings.folder) as spark, lone_broker(settings.folder) as server:
        for topic in TOPICS:
            fill(server, topic, batch_records * BATCHES)
            yield _Contest(spark, server, topic, settings, batch_records).figure()


def fill(server: str, topic: str, records: int) -> None:
    values, compression = TOPICS[topic]
    create_topic(server, topic, PARTITIONS)
    with closing(KafkaProducer(bootstrap_servers=server, compression_type=compression, linger_ms=5)) as producer:
        for number, value in enumerate(values(records)):
            producer.send(topic, value, b"order-%08d" % number, headers=[("channel", b"web")])


class _Contest:
    def __init__(self, spark: SparkSession, server: str, topic: str, settings: Settings, batch_records: int) -> None:
        self._server = server
        self._topic = topic
        self._settings = settings
        self._batch_records = batch_records
        self._lake = settings.folder / "lake"
        self._breakdown = Breakdown(spark, left_out=LEFT_OUT, end_left_out=END_LEFT_OUT)

    def figure(self) -> Figure:
        rounds = warmed_by_turns(self._settings.rounds, self._ours, self._spark_kafka)
        sizes = {
            "records": self._batch_records * BATCHES,
            "records in a batch": self._batch_records,
            "batches left out": [LEFT_OUT, END_LEFT_OUT],
            "bytes of a value": _VALUE_BYTES,
            "partitions": PARTITIONS,
            "cores": CORES,
            "broker": VERSION,
        }
        return Figure(
            work=f"Kafka, topic of {self._topic}",
            ours="Kafka topic → kafka_log",
            against="Spark's Kafka source → Delta",
            unit="records/s",
            rounds=rounds,
            goal=GOAL,
            details={**sizes, **self._breakdown.details()},
        )

    def _ours(self, number: int) -> float:
        given = {"servers": self._server, "max_offsets_per_trigger": self._batch_records}
        config = config_of(self._lake, topics=[{"id": f"kafka/bench/{self._topic}", **given}])
        return self._ended(number, "logtwin", self._breakdown.ours(config, self._batch_records * BATCHES))

    def _spark_kafka(self, number: int) -> float:
        records = self._batch_records * BATCHES
        rate = self._breakdown.spark_kafka(
            self._server, self._topic, self._lake, records, batch_records=self._batch_records
        )
        return self._ended(number, "Spark's Kafka source", rate)

    def _ended(self, number: int, name: str, rate: float) -> float:
        print(f"{self._topic}, round {number + 1}: {name} {rate:,.0f} records/s", flush=True)
        shutil.rmtree(self._lake)
        return rate
