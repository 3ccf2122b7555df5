"""The cost of more partitions: 6, 200, 1,000 and 5,000 of a topic of a real Kafka broker, with the same load in all.

The course of a run, and what is measured, is in `bench.many_live`; broker and producer are on this machine, too. In one
round, because it takes minutes. For 200 partitions Spark's own source runs under the same load, with Delta's writer and
the same trigger.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.contest import Figure, Goal, Round, Settings
from bench.contestants import config_of, spark_kafka_stream, sparks_own_files
from bench.freshness import TOPIC, TRIGGER, rows
from bench.load import running_load
from bench.many_live import RATE_PER_S, Live, Masters, live, rates
from bench.peers import running_session
from pipeline.config.configuration import Config
from pipeline.demo.kafka_broker import VERSION
from pipeline.spark.session import NEEDED
from sinks.tables import KAFKA_LOG

FEW = 6
BESIDE_SPARK = 200
MANY = 1000
MOST = 5000
FRESH = {BESIDE_SPARK: Goal(most=1.3), MANY: Goal(most=2.0)}
AS_OFTEN = Goal(least=0.95)
STARTED = Goal(most=1.5)
WITHIN = Goal(most=1.0)
FRESH_MS = 5000
IDLE_CORES = 0.3
MORE_MIB = 200


def _config(lake: Path, server: str) -> Config:
    return config_of(lake, metadata=True, topics=[{"id": f"kafka/bench/{TOPIC}", "servers": server}])


BROKER = Masters(
    module="bench.partitions", config=_config, table=KAFKA_LOG, stored="timestamp", warm_up_s=15, measured_s=40
)


def measure(settings: Settings) -> Iterator[Figure]:
    counts = {count: settings.scaled(count, least=2) for count in (FEW, BESIDE_SPARK, MANY, MOST)}
    with running_session(settings.folder, heap=NEEDED["spark.driver.memory"]) as spark:
        live(spark, settings, BROKER, counts[FEW])  # warms up JVM and Python
        few = live(spark, settings, BROKER, counts[FEW])
        details: dict[str, Any] = {"broker": VERSION, f"{FEW}": _details(few, FEW)}
        for count, goal in FRESH.items():
            many = live(spark, settings, BROKER, counts[count])
            yield from _beside_few(few, many, count, goal, details | {f"{count}": _details(many, count)})
            if count == BESIDE_SPARK:
                yield _beside_spark(many, with_spark(spark, settings, counts[count]))
        most = live(spark, settings, BROKER, counts[MOST])
        yield _bound("freshness p99", MOST, "ms", most.p99_ms, FRESH_MS, _details(most, MOST))


def _beside_few(few: Live, many: Live, count: int, goal: Goal, details: Mapping[str, Any]) -> Iterator[Figure]:
    for what, unit, one_goal, both in (
        ("freshness p99", "ms", goal, (many.p99_ms, few.p99_ms)),
        ("commits", "commits", AS_OFTEN, (many.commits, few.commits)),
        ("first commit", "s", STARTED, (many.first_s, few.first_s)),
    ):
        yield Figure(
            work=f"{RATE_PER_S:,} messages/s to Kafka, {count:,} partitions, {what}",
            ours=f"{count:,} partitions",
            against=f"{FEW} partitions",
            unit=unit,
            rounds=(Round(*both),),
            goal=one_goal,
            details=details if what == "freshness p99" else {},
        )
    if count == MANY:
        yield _bound("cores when idle", count, "cores", sum(many.idle_cores.values()), IDLE_CORES)
        more_mib = sum(many.held_mib.values()) - sum(few.held_mib.values())
        yield _bound(f"memory over that of {FEW}", count, "MiB", more_mib, MORE_MIB)


def _bound(what: str, count: int, unit: str, ours: float, bound: float, details: Mapping[str, Any] = {}) -> Figure:
    return Figure(
        work=f"{count:,} partitions, {what}",
        ours=f"{count:,} partitions",
        against=f"the goal of {bound:g} {unit}",
        unit=unit,
        rounds=(Round(ours, bound),),
        goal=WITHIN,
        details=details,
    )


def _beside_spark(ours: Live, theirs: Mapping[str, Any]) -> Figure:
    return Figure(
        work=f"{RATE_PER_S:,} messages/s to Kafka, {BESIDE_SPARK} partitions, freshness p99 beside Spark's own source",
        ours="Kafka topic → kafka_log",
        against="Spark's Kafka source → Delta, same trigger",
        unit="ms",
        rounds=(Round(ours.p99_ms, theirs["p99_ms"]),),
        goal=WITHIN,
        details=dict(theirs),
    )


def _details(one: Live, count: int) -> dict[str, Any]:
    spent_ms = sum(one.cores.values()) * BROKER.measured_s * 1000
    return asdict(one) | {"ms of a core for a batch and log": round(spent_ms / max(one.commits, 1) / count, 3)}


def with_spark(spark: SparkSession, settings: Settings, count: int) -> dict[str, Any]:
    """The freshness that Spark's own source reaches. Raises SystemExit if a message is missing, or there twice."""
    folder = settings.folder / "spark"
    folder.mkdir()
    lake = folder / "lake"
    table = Path(KAFKA_LOG.path(str(lake)))
    with running_load(BROKER.module, folder, count, RATE_PER_S, TOPIC) as load, sparks_own_files(spark):
        query = spark_kafka_stream(spark, load.masters, TOPIC, lake, {}).trigger(processingTime=TRIGGER).start()
        try:
            while not len(rows(table, BROKER.stored).offsets):
                query.awaitTermination(1)  # raises the error that ended the query
            time.sleep(settings.scaled(BROKER.warm_up_s, least=2))
            begin_ms = time.time() * 1000
            time.sleep(settings.scaled(BROKER.measured_s, least=4))
            end_ms = time.time() * 1000
            stored = load.stop_sending()
            while len(rows(table, BROKER.stored).offsets) < stored:
                query.awaitTermination(1)
        finally:
            query.stop()
    found = rows(table, BROKER.stored)
    if len(found.offsets) != stored:
        raise SystemExit(f"many partitions: {len(found.offsets):,} rows by Spark's source, {stored:,} were stored")
    shutil.rmtree(folder)
    return rates(found, begin_ms, end_ms)
