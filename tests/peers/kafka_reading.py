"""What a Kafka broker holds, read beside our own reader by a consumer that knows nothing of it: kafka-python's."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.cluster.topics import Topic, topics_named
from sources.kafka.isolation import Isolation
from sources.kafka.reader import KafkaReader
from sources.kafka.topic import KafkaTopic
from sources.master import Known
from sources.offsets import Offset, OffsetRange
from tests.peers.kafka import KafkaBroker
from tests.sources.kafka.read_partition import KafkaPartition

Row = tuple[Any, ...]
COLUMNS = ["offset", "leader_epoch", "topic", "partition", "timestamp", "timestamp_type", "key", "value", "headers"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_TYPES = {0: "create_time", 1: "log_append_time"}


def settings_of(broker: KafkaBroker) -> KafkaSettings:
    return KafkaSettings(servers=(broker.server,))


def topic_of(broker: KafkaBroker, name: str) -> Topic:
    with connected(settings_of(broker)) as cluster:
        return topics_named(cluster, [name])[0]


class AskedPartition(KafkaPartition):
    """A partition that is asked for itself; a job asks its topic."""

    def bounds(self) -> OffsetRange:
        return self._of_topic.bounds(self.topic_id).held[self.partition]

    def check_history(self, position: Offset, epoch: int | None) -> None:
        self._of_topic.check_history({self.log_id: Known(str(self.topic_id), position, epoch)})

    @property
    def _of_topic(self) -> KafkaTopic:
        reader = self.reader
        return KafkaTopic(settings=reader.settings, cluster=self.cluster, topic=self.topic, isolation=reader.isolation)


def partition_of(broker: KafkaBroker, topic: str, partition: int = 0, **options: Any) -> AskedPartition:
    """`options` are those of a reader."""
    return AskedPartition(
        reader=KafkaReader(settings=settings_of(broker), **options),
        cluster="test",
        topic=topic,
        topic_id=topic_of(broker, topic).id,
        partition=partition,
    )


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
