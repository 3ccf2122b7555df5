"""The cost of more partitions: 6, 200, 1,000 and 5,000 of a topic of a real Kafka broker, with the same load in all.

The course of a run, and what is measured, is in `bench.many_live`; broker and producer are on this machine, too. In one
round, because it takes minutes. For 200 partitions Spark's own source takes the same course, after all of ours: it
leaves much in the JVM that they share, whose memory is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from bench.contest import Figure, Goal, Settings
from bench.many_live import KAFKA, RATE_PER_S, Course, Live, bound, compared, live, with_spark
from bench.peers import running_session
from pipeline.demo.kafka_broker import VERSION
from pipeline.spark.session import NEEDED

FEW = 6
BESIDE_SPARK = 200
MANY = 1000
MOST = 5000
COURSE = Course(warm_up_s=15, measured_s=40)
FRESH = {BESIDE_SPARK: Goal(most=1.3), MANY: Goal(most=2.0)}
AS_OFTEN = Goal(least=0.95)
STARTED = Goal(most=1.5)
BEST = Goal(most=1.0)
FRESH_MS = 5000
IDLE_CORES = 0.3
MORE_MIB = 200


def measure(settings: Settings) -> Iterator[Figure]:
    counts = {count: settings.scaled(count, least=2) for count in (FEW, BESIDE_SPARK, MANY, MOST)}
    with running_session(settings.folder, heap=NEEDED["spark.driver.memory"]) as spark:
        run = partial(live, spark, settings, KAFKA, course=COURSE)
        run(counts[FEW])  # warms up JVM and Python
        few = run(counts[FEW])
        many = {count: run(counts[count]) for count in FRESH}
        most = run(counts[MOST])
        theirs = run(counts[BESIDE_SPARK], way=with_spark)
    details: dict[str, Any] = {"broker": VERSION, f"{FEW}": _details(few, FEW)}
    for count, goal in FRESH.items():
        yield from _beside_few(few, many[count], count, goal, details | {f"{count}": _details(many[count], count)})
    yield from compared(
        f"{RATE_PER_S:,} messages/s to Kafka, {BESIDE_SPARK} partitions",
        "Kafka topic → kafka_log",
        "Spark's Kafka source → Delta, same trigger",
        ("freshness p99 beside Spark's own source", "ms", BEST, many[BESIDE_SPARK].p99_ms, theirs.p99_ms),
        **asdict(theirs),
    )
    yield _bound("freshness p99", MOST, "ms", most.p99_ms, FRESH_MS, **{f"{MOST}": _details(most, MOST)})


def _beside_few(few: Live, many: Live, count: int, goal: Goal, details: Mapping[str, Any]) -> Iterator[Figure]:
    yield from compared(
        f"{RATE_PER_S:,} messages/s to Kafka, {count:,} partitions",
        f"{count:,} partitions",
        f"{FEW} partitions",
        ("freshness p99", "ms", goal, many.p99_ms, few.p99_ms),
        ("commits", "commits", AS_OFTEN, many.commits, few.commits),
        ("first commit", "s", STARTED, many.first_s, few.first_s),
        **details,
    )
    if count == MANY:
        yield _bound("cores when idle", count, "cores", sum(many.idle_cores.values()), IDLE_CORES)
        more_mib = sum(many.held_mib.values()) - sum(few.held_mib.values())
        yield _bound(f"memory over that of {FEW}", count, "MiB", more_mib, MORE_MIB)


def _bound(what: str, count: int, unit: str, ours: float, most: float, **details: Any) -> Figure:
    return bound(f"{count:,} partitions, {what}", f"{count:,} partitions", unit, ours, most, **details)


def _details(one: Live, count: int) -> dict[str, Any]:
    spent_ms = sum(one.cores.values()) * one.measured_s * 1000
    return asdict(one) | {"ms of a core for a batch and log": round(spent_ms / max(one.commits, 1) / count, 3)}
