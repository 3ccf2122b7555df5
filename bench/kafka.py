"""A topic's way into Delta: logtwin's path into kafka_log against Spark's own Kafka source, in the same run.

``python -m bench.kafka [records] [rounds]``. A real broker holds records of 1 KB in six partitions, sent as producers
send by default, in batches of 16 KiB: a topic that no codec makes smaller, not compressed, and one of JSON with lz4.
Both ways read it in micro-batches of the same size, one right after the other, into a table of the same columns and
properties, Parquet with zstd. They take turns. What is compared is the steady state: records/s from the commit of an
early batch to that of the last one, by the times in each table's Delta log.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from pipeline.config import parse
from pipeline.kafka_broker import VERSION, running_broker
from pipeline.replicate import Job
from pipeline.session import build_session
from sinks.kernel import KernelTable
from sinks.tables import KAFKA_LOG
from sinks.warehouse import ensure_table
from tests.peers.spark_kafka import add_connector

PARTITIONS = 6
BATCH_RECORDS = 50_000
LEFT_OUT = 3  # batches, in which JVM and Python workers get warm
_VALUE_BYTES = 1000
_PIECE_BYTES = 100


def random_values(records: int) -> Iterator[bytes]:
    chance = random.Random(7)
    for _ in range(records):
        yield chance.randbytes(_VALUE_BYTES)


def json_values(records: int) -> Iterator[bytes]:
    """Numbers that differ, and text of a few hundred words."""
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


def fill(server: str, topic: str, records: int) -> None:
    values, compression = TOPICS[topic]
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)
    started = time.perf_counter()
    with closing(KafkaProducer(bootstrap_servers=server, compression_type=compression, linger_ms=5)) as producer:
        for number, value in enumerate(values(records)):
            producer.send(topic, value, b"order-%08d" % number, headers=[("channel", b"web")])
    print(f"sent {records:,} records to {topic} in {time.perf_counter() - started:.0f} s", flush=True)


def with_logtwin(spark: SparkSession, server: str, topic: str, lake: Path) -> None:
    topics = [{"id": f"kafka/bench/{topic}", "servers": server, "max_offsets_per_trigger": BATCH_RECORDS}]
    config = parse({"warehouse": str(lake), "topics": topics, "metadata": {"enabled": False}}, where="bench")
    job = Job(spark, config, available_now=True)
    job.start()
    job.run(poll_interval_s=0.05)


def with_spark(spark: SparkSession, server: str, topic: str, lake: Path) -> None:
    path = KAFKA_LOG.path(str(lake))
    ensure_table(KernelTable(spark, path), KAFKA_LOG)
    given = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": server,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(BATCH_RECORDS),
        }
    )
    records = given.load().selectExpr(
        "concat('kafka/bench/', topic, '/', partition) AS log_id",
        "0 AS epoch",
        "offset",
        "cast(null AS int) AS leader_epoch",
        "topic",
        "partition",
        "timestamp",
        "if(timestampType = 0, 'create_time', 'log_append_time') AS timestamp_type",
        "key",
        "value",
        "headers",
    )
    query = (
        records.writeStream.format("delta")
        .option("checkpointLocation", str(lake / "checkpoint"))
        .trigger(availableNow=True)
        .start(path)
    )
    query.awaitTermination()


WAYS = {"logtwin": with_logtwin, "Spark's Kafka source": with_spark}


def steady_records_per_s(table: Path, records: int) -> float:
    """Of the commits after LEFT_OUT. Raises SystemExit where the table has not all records."""
    commits = [one for path in sorted(table.glob("_delta_log/*.json")) if (one := _commit(path))[1]]
    if sum(rows for _, rows in commits) != records:
        raise SystemExit(f"{table} has {sum(rows for _, rows in commits):,} records, not {records:,}")
    seconds = (commits[-1][0] - commits[LEFT_OUT - 1][0]) / 1000
    return sum(rows for _, rows in commits[LEFT_OUT:]) / seconds


def _commit(path: Path) -> tuple[int, int]:
    """When it was made, in ms since 1970, and how many rows it added."""
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    at_ms = next(one["commitInfo"]["timestamp"] for one in actions if "commitInfo" in one)
    return at_ms, sum(json.loads(one["add"]["stats"])["numRecords"] for one in actions if "add" in one)


def main(records: int = 400_000, rounds: int = 3) -> None:
    folder = Path(tempfile.mkdtemp(prefix="logtwin-bench-"))
    try:
        with running_broker(folder / "broker") as server:
            print(f"Kafka {VERSION}, {PARTITIONS} partitions, micro-batches of {BATCH_RECORDS:,} records", flush=True)
            for topic in TOPICS:
                fill(server, topic, records)
            codec = {"spark.sql.parquet.compression.codec": "zstd"}
            spark = build_session({"spark.master": "local[2]", **codec}, name="bench", log_file=folder / "spark.log")
            add_connector(spark)
            for topic in TOPICS:
                compare(spark, server, topic, records, rounds, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare(spark: SparkSession, server: str, topic: str, records: int, rounds: int, folder: Path) -> None:
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name, way in WAYS.items():
            lake = folder / f"{topic}-{number}-{name[0]}"
            way(spark, server, topic, lake)
            rates[name].append(steady_records_per_s(Path(KAFKA_LOG.path(str(lake))), records))
            shutil.rmtree(lake)
    for name, found in rates.items():
        print(f"{topic}, {name}: {statistics.median(found):,.0f} records/s (median of {rounds})", flush=True)
    ratios = [ours / theirs for ours, theirs in zip(*rates.values(), strict=True)]
    print(f"{topic}, ratio, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}", flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
