"""What a Kafka broker holds, read beside our own reader by a consumer that knows nothing of it: kafka-python's."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.settings import Isolation, KafkaSettings
from sources.kafka.cluster.topics import Topic, topics_named
from sources.kafka.log import KafkaLog
from sources.kafka.topic import KafkaTopic
from sources.master import Chunk, Damage, Known
from sources.offsets import OffsetRange
from tests.peers.kafka import KafkaBroker

Row = tuple[Any, ...]
COLUMNS = ["offset", "leader_epoch", "topic", "partition", "timestamp", "timestamp_type", "key", "value", "headers"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_TYPES = {0: "create_time", 1: "log_append_time"}


def settings_of(broker: KafkaBroker) -> KafkaSettings:
    return KafkaSettings(servers=(broker.server,))


def topic_of(broker: KafkaBroker, name: str) -> Topic:
    with connected(settings_of(broker)) as cluster:
        return topics_named(cluster, [name])[0]


def partition_of(broker: KafkaBroker, topic: str, number: int = 0, **options: Any) -> KafkaLog:
    """`options` are those of its topic."""
    of_topic = KafkaTopic(settings=settings_of(broker), cluster="test", topic=topic, **options)
    return KafkaLog(topic=of_topic, number=number, known=Known(str(topic_of(broker, topic).id)))


def pieces_of(partition: KafkaLog, owned: OffsetRange, after_epoch: int | None = None) -> Iterator[Chunk | Damage]:
    """What is read of `owned`; `after_epoch` is the leader epoch of what lies before it."""
    known = Known(partition.known.identity, owned.start, after_epoch)
    return partition.continuing(known).read(owned, committed=None, boundary=True)


def consumed(broker: KafkaBroker, topic: str, isolation: Isolation, partition: int = 0) -> list[Row]:
    """Every record of the partition that a consumer is given now, as rows of COLUMNS."""
    tp = KafkaTopicPartition(topic, partition)
    options = {"isolation_level": isolation.name.lower(), "enable_auto_commit": False, "group_id": None}
    with closing(KafkaConsumer(bootstrap_servers=broker.server, **options)) as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        consumer.seek_to_beginning(tp)
        found = []
        while consumer.position(tp) < end:
            for records in consumer.poll(timeout_ms=1000).values():
                found += [_row(record) for record in records]
    return found


def rows(records: pa.RecordBatch) -> list[Row]:
    """The same of our own records."""
    lists = [records.column(name).to_pylist() for name in COLUMNS]
    return [(*row[:-1], [(header["key"], header["value"]) for header in row[-1]]) for row in zip(*lists, strict=True)]


def _row(record: Any) -> Row:
    timestamp = None if record.timestamp < 0 else _EPOCH + timedelta(milliseconds=record.timestamp)
    return (
        record.offset, record.leader_epoch, record.topic, record.partition, timestamp,
        _TIMESTAMP_TYPES[record.timestamp_type], record.key, record.value, list(record.headers),
    )  # fmt: skip
