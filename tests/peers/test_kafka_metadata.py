"""What real brokers say of a topic's partitions, beside what the test did to them."""

from __future__ import annotations

from typing import Any

import pytest

from sources.errors import LogtwinError
from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.topics import TopicPartition
from sources.kafka.metadata import fetched
from sources.kafka.topic import KafkaTopic
from sources.master import Committed
from sources.metadata import KAFKA_PARTITIONS
from sources.offsets import Offset
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import settings_of
from tests.peers.kafka_traffic import Record, add_partitions, create_topic, delete_records, producer, send, transaction

pytestmark = pytest.mark.peer

RECORDS = [Record(b"%d" % number) for number in range(10)]


def orders(broker: KafkaBroker, topic: str = "described", **options: Any) -> KafkaTopic:
    return KafkaTopic(settings=settings_of(broker), cluster="prod", topic=topic, patience_ms=5_000, **options)


def rows(topic: KafkaTopic) -> list[tuple[Any, ...]]:
    """All columns but the topic's id."""
    (found,) = fetched(topic)
    assert found.kind is KAFKA_PARTITIONS
    assert found.items is not None
    assert not isinstance(found.items, LogtwinError), found.items
    return [tuple(row.values()) for row in found.items.drop_columns(["topic_id"]).to_pylist()]


def test_bounds_transactions_and_the_group_are_as_they_were_made(each_kafka: KafkaBroker) -> None:
    create_topic(each_kafka, "described", 2)
    with producer(each_kafka) as through:
        send(through, "described", RECORDS, 0)
    delete_records(each_kafka, "described", 0, 4)
    group = ConsumerGroup("describing")
    with connected(settings_of(each_kafka)) as cluster:
        group.commit(cluster, {TopicPartition("described", 0): Committed(Offset(7), 0)})
    node = each_kafka.node_id
    with producer(each_kafka, transactional_id="describing") as through, transaction(through):
        send(through, "described", RECORDS[:3], 1)
        assert rows(orders(each_kafka, group="describing")) == [
            (0, node, 0, 4, 10, 10, "describing", 7),
            (1, node, 0, 0, 0, 3, "describing", None),
        ]
    add_partitions(each_kafka, "described", 3)
    assert [row[3:] for row in rows(orders(each_kafka))] == [
        (4, 10, 10, None, None),
        (0, 4, 4, None, None),  # with the end of the transaction
        (0, 0, 0, None, None),
    ]
