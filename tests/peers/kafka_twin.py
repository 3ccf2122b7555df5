"""The replica of a topic ``kafka/test/…``, looked at."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from sinks.kafka.position import TopicTable
from sinks.kafka.state import TopicState
from sinks.tables import KAFKA_LOG
from sources.offsets import LogId
from tests.pipeline.running import ledger_table


def state_of(spark: SparkSession, lake: Path, topic: str) -> TopicState:
    state = TopicTable(spark, KAFKA_LOG.path(str(lake)), LogId("kafka", f"test/{topic}")).read().state
    assert state is not None
    return state


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
