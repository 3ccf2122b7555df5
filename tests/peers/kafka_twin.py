"""Replicas of topics ``kafka/test/…``: their configuration, where they stand, and what must hold of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from sinks.books.topic_states import topics_held
from sinks.state.log_table import LogTable
from sinks.tables import KAFKA_LOG
from sources.kafka.cluster.settings import Isolation
from sources.offsets import LogId, Offset, OffsetRange, partition_log
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_groups import seen_by_tools
from tests.peers.kafka_reading import COLUMNS, Row, consumed, rows, topic_of


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
    topic_id: str | None
    partitions: Mapping[int, PartitionTwin]


def config_of(broker: KafkaBroker, lake: Path, *topics: str, **options: Any) -> Config:
    given = {"cluster": "test", "topics": list(topics), "servers": broker.server, **options}
    return parse({"warehouse": str(lake), "trigger_interval_s": 0.5, "topics": [given]}, where="test")


def group_offsets(broker: KafkaBroker, topic: str, group: str = "logtwin") -> dict[int, int]:
    """What every tool that shows lag sees."""
    told = seen_by_tools(broker, group).items()
    return {number: offset for (name, number), (offset, _) in told if name == topic}


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


def table(lake: Path, name: str, *columns: str) -> pa.Table:
    return DeltaTable(str(lake / name)).to_pyarrow_table(columns=list(columns) or None)


def assert_replicated(lake: Path, broker: KafkaBroker, *topics: str, start: int = 0) -> int:
    """The table has what a consumer is given of `topics` from offset `start` on, each once. Returns how many."""
    given: list[Row] = []
    for topic in topics:
        for partition in topic_of(broker, topic).leaders:
            given += consumed(broker, topic, Isolation.READ_COMMITTED, partition)
    found = [row for batch in table(lake, "kafka_log", *COLUMNS).to_batches() for row in rows(batch)]
    kept = sorted((row for row in given if row[0] >= start), key=_place)
    assert sorted((row for row in found if row[0] >= start), key=_place) == kept
    return len(kept)


def _place(row: Row) -> tuple[str, int, int]:
    return row[2], row[3], row[0]


def assert_accounted(spark: SparkSession, lake: Path, topic: str) -> None:
    """The ledger joins from each partition's beginning to its position, and has the number of the rows in it."""
    records = Counter(table(lake, "kafka_log", "log_id")["log_id"].to_pylist())
    ledger = table(lake, "ledger").to_pylist()
    for number, one in state_of(spark, lake, topic).partitions.items():
        log_id = f"kafka/test/{topic}/{number}"
        parts = sorted((row for row in ledger if row["log_id"] == log_id), key=lambda row: row["start"])
        at = one.first
        for row in parts:
            assert row["start"] in (at, *(hole.end for hole in one.holes))
            at = row["end"]
        assert at == one.offset or any(hole.end == one.offset for hole in one.holes)
        assert sum(row["records"] for row in parts) == records[log_id]
