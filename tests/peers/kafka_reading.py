"""What a Kafka broker holds, read beside our own reader by a consumer that knows nothing of it: kafka-python's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from sources.bounds import check_within
from sources.errors import naming
from sources.kafka.bounds import bounds_at, epoch_end
from sources.kafka.cluster.connection import Cluster, connected
from sources.kafka.cluster.retries import ask_again
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.cluster.topics import Leader, Topic, TopicPartition, check_same, topics_named
from sources.kafka.epochs import check_history
from sources.kafka.isolation import Isolation
from sources.kafka.reader import KafkaReader
from sources.offsets import Offset, OffsetRange
from tests.peers.kafka import KafkaBroker
from tests.sources.kafka.read_partition import KafkaPartition

Row = tuple[Any, ...]
T = TypeVar("T")
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
        return self._ask(lambda cluster, leader: bounds_at(cluster, leader, self._tp, self.reader.isolation))

    def check_history(self, position: Offset, epoch: int | None) -> None:
        self._ask(partial(self._check_history, position, epoch))

    @property
    def _tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def _ask(self, question: Callable[[Cluster, Leader], T]) -> T:
        def connect_and_ask() -> T:
            with connected(self.reader.settings) as cluster:
                topic = topics_named(cluster, [self.topic])[0]
                check_same(topic, self.topic_id)
                return question(cluster, topic.leader(self.partition))

        with naming(self.log_id):
            return ask_again(connect_and_ask, patience_ms=self.reader.patience_ms)

    def _check_history(self, position: Offset, epoch: int | None, cluster: Cluster, leader: Leader) -> None:
        held = bounds_at(cluster, leader, self._tp, Isolation.READ_UNCOMMITTED)
        check_within(OffsetRange(position, position), held, kind="kafka")
        if epoch is not None:
            check_history(epoch, position, epoch_end(cluster, leader, self._tp, epoch), held, self.log_id)


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
