"""How long after the broker has stored a message it can be read in Delta, at 1,000 messages/s and a trigger of 1 s.

Ours is logtwin as a job runs it (defaults, with metadata), a slave over HA of a real RocketMQ broker. The competitor is
Spark's Kafka source and Delta's writer, from a real Kafka broker, with one partition: the fewest tasks and files that
it needs. Each turn takes the course of `bench.many_live`, with its own broker, table and producer process, and nothing
else runs. logtwin's own Kafka path runs the same once, for the details.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from bench.contest import Figure, Goal, Round, Settings, by_turns
from bench.many_live import KAFKA, ROCKETMQ, TRIGGER, Course, Live, Masters, Way, live, with_logtwin, with_spark
from bench.peers import running_session
from bench.sender import BODY_BYTES, ROCKETMQ_VERSION
from pipeline.demo.kafka_broker import VERSION as KAFKA_VERSION
from pipeline.spark.session import NEEDED

COURSE = Course(warm_up_s=20, measured_s=60, rate_per_s=1000)
GOAL = Goal(most=0.7)
_LEAST_RATE = 0.95


@dataclass
class Contestant:
    """A contestant; `found` has the result of each turn."""

    spark: SparkSession
    settings: Settings
    masters: Masters
    way: Way
    found: list[Live] = field(default_factory=list)

    def p50_ms(self, _: int) -> float:
        """Of one turn. Raises SystemExit if the producer did not keep its rate."""
        one = live(self.spark, self.settings, self.masters, 1, COURSE, self.way)
        if one.stored_per_s < _LEAST_RATE * COURSE.rate_per_s:
            raise SystemExit(f"the producer reached {one.stored_per_s:,.0f} messages/s, not {COURSE.rate_per_s:,}")
        self.found.append(one)
        return one.p50_ms

    def details(self) -> dict[str, Any]:
        """The medians of the turns, and the last turn."""
        names = ("p50_ms", "p99_ms", "stored_per_s", "commits")
        medians = {name: statistics.median(getattr(one, name) for one in self.found) for name in names}
        return asdict(self.found[-1]) | medians


def measure(settings: Settings) -> Iterator[Figure]:
    with running_session(settings.folder, heap=NEEDED["spark.driver.memory"]) as spark:
        ours, against, own_kafka = (
            Contestant(spark, settings, masters, way)
            for masters, way in ((ROCKETMQ, with_logtwin), (KAFKA, with_spark), (KAFKA, with_logtwin))
        )
        p50 = by_turns(settings.rounds, ours.p50_ms, against.p50_ms)
        own_kafka.p50_ms(0)
    p99 = tuple(Round(one.p99_ms, other.p99_ms) for one, other in zip(ours.found, against.found, strict=True))
    details = {
        **asdict(COURSE.scaled(settings)),
        "body_bytes": BODY_BYTES,
        "trigger": TRIGGER,
        "versions": {"RocketMQ": ROCKETMQ_VERSION, "Kafka": KAFKA_VERSION},
        "ours": ours.details(),
        "against": against.details(),
        "own_kafka": own_kafka.details(),
    }
    for name, rounds in (("p50", p50), ("p99", p99)):
        yield Figure(
            work=f"freshness {name}, {COURSE.rate_per_s:,} messages/s",
            ours="RocketMQ over HA → log",
            against="Spark's Kafka source → Delta append, same trigger",
            unit="ms",
            rounds=rounds,
            goal=GOAL,
            details=details,
        )
