"""Topics of a real broker through Spark: equal to what an independent consumer reads, and each record once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sources.datasource import register
from sources.errors import ConfigurationError, LogtwinError, Recreated
from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.topics import topics_matching
from sources.kafka.isolation import Isolation
from sources.kafka.streaming import TOPIC_SCHEMA
from tests.patience import wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import Row, consumed, rows, settings_of, topic_of
from tests.peers.kafka_security import SecureListeners
from tests.peers.kafka_traffic import Record, add_partitions, create_topic, delete_topic, producer, send, send_mixed
from tests.sources.said_by_spark import error_said

pytestmark = [pytest.mark.spark, pytest.mark.peer]

LIMIT = 50


@pytest.fixture(scope="module")
def keys(kafka_keys: SecureListeners) -> SecureListeners:
    return kafka_keys


@pytest.fixture(scope="module")
def broker(newest_kafka: KafkaBroker) -> KafkaBroker:
    return newest_kafka


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def protected(broker: KafkaBroker, keys: SecureListeners, tmp_path: Path) -> dict[str, str]:
    """Options of a connection with a user, whose name and password are in files."""
    for name, secret in (("user", keys.user), ("password", keys.password)):
        (tmp_path / name).write_text(secret)
    return {
        "servers": broker.sasl_server,
        "securityProtocol": "SASL_SSL",
        "saslMechanism": "SCRAM-SHA-512",
        "saslUsername": f"file:{tmp_path / 'user'}",
        "saslPassword": f"file:{tmp_path / 'password'}",
        "sslCaFile": str(keys.ca_file),
    }


def send_plain(broker: KafkaBroker, topic: str, partitions: int, count: int) -> None:
    with producer(broker) as through:
        for partition in range(partitions):
            send(through, topic, (Record(b"%d" % number) for number in range(count)), partition)


def names(broker: KafkaBroker) -> list[str]:
    with connected(settings_of(broker)) as cluster:
        return [topic.name for topic in topics_matching(cluster, ".*")]


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


def error_of(action: Callable[[], Any], keys: SecureListeners) -> LogtwinError:
    """What `action` raises, which tells no secret."""
    with pytest.raises(PySparkException) as caught:
        action()
    told = str(caught.value)
    assert keys.user not in told
    assert keys.password not in told
    return error_said(told)


def test_a_batch_read_is_what_a_consumer_reads(spark: SparkSession, broker: KafkaBroker) -> None:
    create_topic(broker, "streamed", 3)
    send_mixed(broker, "streamed", 3, 3 * 5 * 40, random.Random(31))
    read = spark.read.format("logtwin").options(id="kafka/east/streamed", servers=broker.server)
    # pieces of which the last ones hold nothing but what was aborted, and answers of less than a batch
    committed = read.options(splitOffsets="30", chunkBytes="500").load().toArrow()
    assert committed.column_names == TOPIC_SCHEMA.names
    assert by_place(rows(committed)) == held(broker, "streamed")
    assert committed.num_rows == 3 * (5 * 40 + 2 * 8)
    logs = [f"kafka/east/streamed/{partition}" for partition in committed["partition"].to_pylist()]
    assert committed["log_id"].to_pylist() == logs

    everything = spark.read.format("logtwin").options(id="kafka/east/streamed", servers=broker.server)
    uncommitted = in_order(everything.option("isolation", "read_uncommitted").load())
    assert uncommitted == held(broker, "streamed", Isolation.READ_UNCOMMITTED)
    assert len(uncommitted) == 3 * (5 * 40 + 5 * 8)
    assert everything.option("startingOffset", "latest").load().count() == 0


@pytest.mark.nightly
def test_a_stream_goes_on_from_its_checkpoint_with_each_record_once(
    spark: SparkSession, broker: KafkaBroker, keys: SecureListeners, protected: dict[str, str], tmp_path: Path
) -> None:
    checkpoint, batches = tmp_path / "checkpoint", list[list[Row]]()

    def broken_at_the_second(batch: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("on purpose")
        batches.append(in_order(batch))

    options = {"id": "kafka/east/growing", **protected}
    create_topic(broker, "growing", 2)
    send_plain(broker, "growing", 2, 60)
    with pytest.raises(PySparkException, match="on purpose"):
        stream(spark, options, checkpoint, broken_at_the_second)
    assert [len(batch) for batch in batches] == [LIMIT]
    assert {row[3] for row in batches[0]} == {0, 1}

    add_partitions(broker, "growing", 3)
    send_plain(broker, "growing", 3, 40)
    stream(spark, options, checkpoint, lambda batch, _: batches.append(in_order(batch)))
    assert by_place([row for batch in batches for row in batch]) == held(broker, "growing")
    assert max(len(batch) for batch in batches) <= LIMIT
    assert len(batches) == 5  # of 240
    stored = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name)).read_text().splitlines()[-1]
    of_topic = topic_of(broker, "growing").id
    assert stored == f'{{"topic": "{of_topic}", "next": {{"0": 100, "1": 100, "2": 40}}}}'

    delete_topic(broker, "growing")
    wait_until(lambda: "growing" not in names(broker), "the topic's end")
    create_topic(broker, "growing", 3)
    send_plain(broker, "growing", 3, 200)
    error = error_of(lambda: stream(spark, options, checkpoint, lambda batch, _: batches.append(in_order(batch))), keys)
    assert isinstance(error, Recreated)
    assert str(error).startswith("kafka/east/growing: ")
    assert f"expected topic id {of_topic}" in str(error)
    assert len(batches) == 5

    kept = b"".join(file.read_bytes() for file in checkpoint.rglob("*") if file.is_file())
    assert json.dumps(str(of_topic)).encode() in kept
    assert keys.user.encode() not in kept
    assert keys.password.encode() not in kept


def test_a_secret_is_told_in_no_error(
    spark: SparkSession, keys: SecureListeners, protected: dict[str, str], tmp_path: Path
) -> None:
    read = spark.read.format("logtwin").options(id="kafka/east/any", **protected)
    written_out = error_of(lambda: read.option("saslPassword", keys.password).load(), keys)
    assert isinstance(written_out, ConfigurationError)
    assert "saslPassword is not the place of a secret" in str(written_out)

    (tmp_path / "password").write_text(keys.password[::-1])
    refused = error_of(lambda: read.option("saslPassword", f"file:{tmp_path / 'password'}").load().count(), keys)
    assert isinstance(refused, ConfigurationError)
    assert f"file:{tmp_path / 'password'}" in str(refused)
