"""Spark's own Kafka source, which knows nothing of ours: what a topic holds, and a replica compared with it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.peers.kafka import KafkaBroker

_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_CONNECTOR = (
    # with the token provider of 4.0.0: that of 4.2.0 was never published
    f"ivy://org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0?transitive=true&exclude={_TOKENS}",
    f"ivy://{_TOKENS}:4.0.0?transitive=false",
)
_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")


@functools.cache
def add_connector(spark: SparkSession) -> None:
    """So that the session knows ``format("kafka")``. Once: each time Ivy would ask the repositories again."""
    for jar in _CONNECTOR:
        spark.sql(f"ADD JAR '{jar}'")


def consumed_by_spark(spark: SparkSession, broker: KafkaBroker, topics: Sequence[str]) -> DataFrame:
    """Every record of `topics` that is committed now, with the columns of `replicated`."""
    add_connector(spark)
    options = {
        "kafka.bootstrap.servers": broker.server,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
    }
    given = spark.read.format("kafka").options(**options).load()
    none = "cast(array() AS array<struct<key: string, value: binary>>)"
    return given.selectExpr(
        "topic", "partition", "offset", "timestamp",
        "if(timestampType = 0, 'create_time', 'log_append_time') AS timestamp_type",
        "key", "value", f"coalesce(headers, {none}) AS headers",
    )  # fmt: skip


def replicated(spark: SparkSession, warehouse: Path) -> DataFrame:
    """The rows of table kafka_log."""
    return spark.read.format("delta").load(f"{warehouse}/kafka_log").select(*_COLUMNS)


def assert_equal(one: DataFrame, other: DataFrame) -> int:
    """The same rows, each as often. Returns how many."""
    one, other = one.cache(), other.cache()
    try:
        assert one.exceptAll(other).take(3) == []
        assert other.exceptAll(one).take(3) == []
        return one.count()
    finally:
        one.unpersist()
        other.unpersist()
