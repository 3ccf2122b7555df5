"""Topics of a real broker through Spark: equal to what an independent consumer reads, and each record once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sources.datasource import register
from sources.kafka.isolation import Isolation
from sources.kafka.streaming import TOPIC_SCHEMA
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import Row, consumed, rows, topic_of
from tests.peers.kafka_traffic import Record, add_partitions, create_topic, producer, send, send_mixed

pytestmark = [pytest.mark.spark, pytest.mark.peer]

LIMIT = 50


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def send_plain(broker: KafkaBroker, topic: str, partitions: int, count: int) -> None:
    with producer(broker) as through:
        for partition in range(partitions):
            send(through, topic, (Record(b"%d" % number) for number in range(count)), partition)


def held(broker: KafkaBroker, topic: str, isolation: Isolation = Isolation.READ_COMMITTED) -> list[Row]:
    """What a consumer reads of all partitions, one after the other."""
    numbers = topic_of(broker, topic).leaders
    return [row for number in numbers for row in consumed(broker, topic, isolation, number)]


def in_order(frame: DataFrame) -> list[Row]:
    """By partition and offset; sorted here, because Spark would read them twice."""
    return by_place(rows(frame.toArrow()))


def by_place(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row[3], row[0]))


def stream(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, on_batch: Callable[[DataFrame, int], None]
) -> None:
    """What is there now, to its end."""
    reader = spark.readStream.format("logtwin").options(**options, maxOffsetsPerTrigger=str(LIMIT), splitOffsets="20")
    writer = reader.load().writeStream.foreachBatch(on_batch).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


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


@pytest.mark.nightly
def test_a_stream_goes_on_from_its_checkpoint_with_each_record_once(
    spark: SparkSession, newest_kafka: KafkaBroker, tmp_path: Path
) -> None:
    checkpoint, batches = tmp_path / "checkpoint", list[list[Row]]()

    def broken_at_the_second(batch: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("on purpose")
        batches.append(in_order(batch))

    options = {"id": "kafka/east/growing", "servers": newest_kafka.server}
    create_topic(newest_kafka, "growing", 2)
    send_plain(newest_kafka, "growing", 2, 60)
    with pytest.raises(PySparkException, match="on purpose"):
        stream(spark, options, checkpoint, broken_at_the_second)
    assert [len(batch) for batch in batches] == [LIMIT]
    assert {row[3] for row in batches[0]} == {0, 1}

    add_partitions(newest_kafka, "growing", 3)
    send_plain(newest_kafka, "growing", 3, 40)
    stream(spark, options, checkpoint, lambda batch, _: batches.append(in_order(batch)))
    assert by_place([row for batch in batches for row in batch]) == held(newest_kafka, "growing")
    assert max(len(batch) for batch in batches) <= LIMIT
    assert len(batches) == 5  # of 240
    stored = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name)).read_text().splitlines()[-1]
    of_topic = topic_of(newest_kafka, "growing").id
    assert stored == f'{{"topic": "{of_topic}", "next": {{"0": 100, "1": 100, "2": 40}}}}'
