"""Messages into typed tables, against a Spark job written by hand.

A real broker holds JSON of 1 KB in six partitions. The hand-written job uses Spark's Kafka source, `from_json` with the
ten columns, and an append to Delta, in micro-batches; or a MERGE by key in `foreachBatch`. For logtwin the topic is
replicated into kafka_log beforehand, as its job does anyway, and only the typed table is measured. Both make the same
columns from the same messages, in one session of two cores, after a round of each that warms up the JVM.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from bench.contest import Figure, Goal, Settings, warmed_by_turns
from bench.contestants import config_of, replicate
from bench.payloads import ORDER_KEYS, create_topic, orders
from bench.peers import CORES, lone_broker, running_session
from pipeline.demo.kafka_broker import VERSION
from sinks.typed.definition import Definition
from sinks.typed.step.follower import TypedFollower

PARTITIONS = 6
RECORDS = 300_000
BATCHES = 3
"""The number of batches of the hand-written job; the typed table has its own steps, of a million messages a partition.
"""
APPEND_GOAL = Goal(least=1.5)
UPSERT_GOAL = Goal(least=1.0)
TOPIC = "orders"
SCHEMA = {
    "order_id": "string", "customer": "bigint", "status": "string", "currency": "string", "amount": "double",
    "quantity": "bigint", "is_paid": "boolean", "weight": "double", "country": "string", "note": "string",
}  # fmt: skip
_DDL = ", ".join(f"{name} {kind}" for name, kind in SCHEMA.items())


def measure(settings: Settings) -> Iterator[Figure]:
    records = settings.scaled(RECORDS, least=3000)
    with running_session(settings.folder) as spark, lone_broker(settings.folder) as server:
        create_topic(server, TOPIC, PARTITIONS)
        with closing(KafkaProducer(bootstrap_servers=server, linger_ms=5)) as producer:
            for key, value in orders(records):
                producer.send(TOPIC, value, key)
        contest = _Contest(spark, server, settings, records)
        replicate(spark, config_of(contest.lake, topics=[{"id": f"kafka/bench/{TOPIC}", "servers": server}]))
        yield contest.figure("append", contest.appended, contest.appended_by_hand, APPEND_GOAL)
        yield contest.figure("upsert", contest.upserted, contest.merged_by_hand, UPSERT_GOAL)
        shutil.rmtree(contest.lake)


class _Contest:
    def __init__(self, spark: SparkSession, server: str, settings: Settings, records: int) -> None:
        self._spark = spark
        self._server = server
        self._settings = settings
        self._records = records
        self.lake = settings.folder / "lake"
        self._by_hand = settings.folder / "by-hand"

    def figure(self, mode: str, ours: Callable[[int], float], against: Callable[[int], float], goal: Goal) -> Figure:
        rounds = warmed_by_turns(self._settings.rounds, ours, against)
        return Figure(
            work=f"typed table, {mode}, JSON of 1 KB",
            ours="kafka_log → typed table",
            against=f"Kafka source, from_json, {'MERGE' if mode == 'upsert' else 'append'}",
            unit="records/s",
            rounds=rounds,
            goal=goal,
            details={
                "records": self._records, "keys": ORDER_KEYS, "columns": len(SCHEMA), "partitions": PARTITIONS,
                "micro-batches by hand": BATCHES, "cores": CORES, "broker": VERSION,
            },
        )  # fmt: skip

    def appended(self, number: int) -> float:
        return self._typed(number, f"append_{number}", ())

    def upserted(self, number: int) -> float:
        return self._typed(number, f"upsert_{number}", ("order_id",))

    def _typed(self, number: int, name: str, key: tuple[str, ...]) -> float:
        wanted = Definition(name=name, kafka_topics=(f"kafka/bench/{TOPIC}",), schema=SCHEMA, key=key)
        began_s = time.monotonic()
        follower = TypedFollower(self._spark, str(self.lake), wanted)
        while follower.step() is not None:
            pass
        rate = self._records / (time.monotonic() - began_s)
        return self._said(f"typed table {name}, round {number + 1}", rate, self.lake / "tables" / name, key)

    def appended_by_hand(self, number: int) -> float:
        began_s = time.monotonic()
        path = str(self._by_hand / "append")
        query = self._parsed().writeStream.format("delta").option("path", path)
        query.option("checkpointLocation", str(self._by_hand / "checkpoint")).trigger(availableNow=True).start(
        ).awaitTermination()  # fmt: skip
        rate = self._records / (time.monotonic() - began_s)
        return self._said(f"append by hand, round {number + 1}", rate, Path(path), ())

    def merged_by_hand(self, number: int) -> float:
        began_s = time.monotonic()
        path = str(self._by_hand / "merge")
        columns = ", ".join(f"{name} {kind}" for name, kind in SCHEMA.items())
        self._spark.sql(f"CREATE TABLE delta.`{path}` (partition INT, offset BIGINT, {columns}) USING delta")

        def merge(batch: DataFrame, _: int) -> None:
            session = batch.sparkSession
            of_key = Window.partitionBy("order_id").orderBy(sql.desc("offset"))
            newest = batch.withColumn("number", sql.row_number().over(of_key)).where("number = 1").drop("number")
            newest.createOrReplaceTempView("newest")
            session.sql(
                f"MERGE INTO delta.`{path}` t USING newest n ON t.order_id = n.order_id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        query = self._parsed().writeStream.foreachBatch(merge)
        query.option("checkpointLocation", str(self._by_hand / "checkpoint")).trigger(availableNow=True).start(
        ).awaitTermination()  # fmt: skip
        rate = self._records / (time.monotonic() - began_s)
        return self._said(f"MERGE by hand, round {number + 1}", rate, Path(path), ("order_id",))

    def _parsed(self) -> DataFrame:
        given = {
            "kafka.bootstrap.servers": self._server, "subscribe": TOPIC, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(-(-self._records // BATCHES)),
        }  # fmt: skip
        records = self._spark.readStream.format("kafka").options(**given).load()
        fields = records.selectExpr("partition", "offset", f"from_json(cast(value AS string), '{_DDL}') AS fields")
        return fields.select("partition", "offset", "fields.*")

    def _said(self, what: str, rate: float, path: Path, key: tuple[str, ...]) -> float:
        """Check that the table has the expected rows, delete it, and return `rate`."""
        rows = self._spark.read.format("delta").load(str(path))
        expected = len({order for order, _ in orders(self._records)}) if key else self._records
        if rows.count() != expected or rows.where("note IS NULL OR amount IS NULL").count():
            raise RuntimeError(f"{what}: not the rows that were sent")
        print(f"{what}: {rate:,.0f} records/s", flush=True)
        shutil.rmtree(path)
        shutil.rmtree(self._by_hand, ignore_errors=True)
        return rate
