"""The replica of a topic ``kafka/test/…``, looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from sinks.state.position import LogTable
from sinks.state.topic_states import topics_held
from sinks.tables import KAFKA_LOG
from sources.master_topic import partition_log
from sources.offsets import LogId, Offset, OffsetRange
from tests.pipeline.running import ledger_table


@dataclass(frozen=True)
class PartitionTwin:
    """Where one partition stands; `holes` are those behind `first`."""

    epoch: int
    offset: Offset
    first: Offset
    leader_epoch: int | None
    holes: tuple[OffsetRange, ...]


@dataclass(frozen=True)
class TopicTwin:
    """A topic that is replicated, by the number of each partition."""

    topic_id: str | None
    partitions: Mapping[int, PartitionTwin]

    @property
    def positions(self) -> dict[int, tuple[Offset, int | None]]:
        return {number: (one.offset, one.leader_epoch) for number, one in self.partitions.items()}


def state_of(spark: SparkSession, lake: Path, topic: str) -> TopicTwin:
    log_id = LogId("kafka", f"test/{topic}")
    numbers = topics_held(str(lake))[log_id]
    held = {at: LogTable(spark, KAFKA_LOG.path(str(lake)), partition_log(log_id, at)).read() for at in sorted(numbers)}
    partitions = {}
    for number, one in held.items():
        state = one.state
        assert state is not None
        assert state.offset is not None
        assert state.first is not None
        holes = tuple(hole for hole in one.holes.ranges if hole.start or hole.end != state.first)
        partitions[number] = PartitionTwin(state.epoch, state.offset, state.first, state.mark, holes)
    (identity,) = {one.state.identity for one in held.values() if one.state is not None}
    return TopicTwin(identity, partitions)


def assert_accounted(spark: SparkSession, lake: Path, topic: str) -> None:
    """The ledger joins from each partition's beginning to its position, and has the number of the rows in it."""
    counted = spark.read.format("delta").load(str(lake / "kafka_log")).groupBy("log_id").count().collect()
    records = {row["log_id"]: row["count"] for row in counted}
    for number, one in state_of(spark, lake, topic).partitions.items():
        log_id = f"kafka/test/{topic}/{number}"
        rows = ledger_table(spark, lake).where(f"log_id = '{log_id}'").orderBy("start").collect()
        at = one.first
        for row in rows:
            assert row["start"] in (at, *(hole.end for hole in one.holes))
            at = row["end"]
        assert at == one.offset or any(hole.end == one.offset for hole in one.holes)
        assert sum(row["records"] for row in rows) == records.get(log_id, 0)
