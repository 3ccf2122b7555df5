"""A topic of a real broker through Spark: equal to what an independent consumer reads."""

import random

import pytest
from pyspark.sql import DataFrame, SparkSession

from sources.datasource import register
from sources.kafka.format.transactions import Isolation
from sources.kafka.streaming import TOPIC_SCHEMA
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import Row, consumed, rows, topic_of
from tests.peers.kafka_traffic import create_topic, send_mixed

pytestmark = [pytest.mark.spark, pytest.mark.peer]


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def held(broker: KafkaBroker, topic: str, isolation: Isolation = Isolation.READ_COMMITTED) -> list[Row]:
    """What a consumer reads of all partitions, one after the other."""
    numbers = topic_of(broker, topic).leaders
    return [row for number in numbers for row in consumed(broker, topic, isolation, number)]


def in_order(frame: DataFrame) -> list[Row]:
    """By partition and offset; sorted here, because Spark would read them twice."""
    return by_place(rows(frame.toArrow()))


def by_place(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row[3], row[0]))


def test_a_batch_read_is_what_a_consumer_reads(spark: SparkSession, newest_kafka: KafkaBroker) -> None:
    create_topic(newest_kafka, "streamed", 3)
    send_mixed(newest_kafka, "streamed", 3, 3 * 5 * 40, random.Random(31))
    read = spark.read.format("logtwin").options(id="kafka/east/streamed", servers=newest_kafka.server)
    # pieces of which the last ones hold nothing but what was aborted, and answers of less than a batch
    committed = read.options(splitOffsets="30", chunkBytes="500").load().toArrow()
    assert committed.column_names == TOPIC_SCHEMA.names
    assert by_place(rows(committed)) == held(newest_kafka, "streamed")
    assert committed.num_rows == 3 * (5 * 40 + 2 * 8)
    logs = [f"kafka/east/streamed/{partition}" for partition in committed["partition"].to_pylist()]
    assert committed["log_id"].to_pylist() == logs

    everything = spark.read.format("logtwin").options(id="kafka/east/streamed", servers=newest_kafka.server)
    uncommitted = in_order(everything.option("isolation", "read_uncommitted").load())
    assert uncommitted == held(newest_kafka, "streamed", Isolation.READ_UNCOMMITTED)
    assert len(uncommitted) == 3 * (5 * 40 + 5 * 8)
    assert everything.option("startingOffset", "latest").load().count() == 0
