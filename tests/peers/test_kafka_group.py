"""The consumer group at real brokers: what we commit is what Kafka's tools see, and others in the group are named."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from sources.errors import ConfigurationError, MasterRefused
from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.topics import TopicPartition
from sources.master import Committed
from sources.offsets import Offset
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_groups import java_member, seen_by_tools
from tests.peers.kafka_reading import settings_of
from tests.peers.kafka_traffic import Record, create_topic, producer, send

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def broker(each_kafka: KafkaBroker) -> KafkaBroker:
    """With the topics a (2 partitions) and b."""
    create_topic(each_kafka, "a", 2)
    create_topic(each_kafka, "b", 1)
    with producer(each_kafka) as through:
        for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
            send(through, topic, [Record(b"%d" % number) for number in range(10)], partition)
    return each_kafka


A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_what_is_committed_is_what_tools_and_consumers_see(broker: KafkaBroker) -> None:
    group = ConsumerGroup("lakehouse")
    with connected(settings_of(broker)) as cluster:
        group.check(cluster)
        assert group.committed(cluster, [A0, A1, B0]) == {}
        group.commit(cluster, {})
        group.commit(cluster, {B0: Committed(Offset(3), 0), A1: Committed(Offset(10), None)})
        group.check(cluster)
        group.commit(cluster, {B0: Committed(Offset(7), 0), A0: Committed(Offset(0), 0)})
        committed = {
            A0: Committed(Offset(0), 0),
            A1: Committed(Offset(10), None),
            B0: Committed(Offset(7), 0),
        }
        assert group.committed(cluster, [A0, A1, B0]) == committed
        assert group.committed(cluster, [A1]) == {A1: committed[A1]}
        assert group.committed(cluster, []) == {}
    assert seen_by_tools(broker, "lakehouse") == {("a", 0): (0, 0), ("a", 1): (10, -1), ("b", 0): (7, 0)}
    with closing(KafkaConsumer(bootstrap_servers=broker.server, group_id="lakehouse")) as consumer:
        assert consumer.committed(KafkaTopicPartition("b", 0)) == 7


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.nightly), "consumer"])
def test_a_group_in_which_somebody_consumes_is_refused_naming_him(broker: KafkaBroker, protocol: str) -> None:
    """By the protocol of Kafka's groups, and by the newer one (KIP-848)."""
    if protocol == "consumer" and broker.version.startswith("3."):
        pytest.skip("the newer protocol is off by default before Kafka 4")
    group = ConsumerGroup(f"taken by {protocol}")
    position = {A0: Committed(Offset(5), 0)}
    with connected(settings_of(broker)) as cluster:
        with java_member(broker, group.name, protocol, "a"):
            for refused in (partial(group.check, cluster), partial(group.commit, cluster, position)):
                with pytest.raises(ConfigurationError, match=f"group {group.name} is consumed by others") as raised:
                    refused()
                assert "client 'in Java' at 127.0.0.1" in str(raised.value)
            assert group.committed(cluster, [A0]) == {}
        group.check(cluster)
        group.commit(cluster, position)
        assert group.committed(cluster, [A0]) == position


def test_a_topic_that_is_gone_is_said(broker: KafkaBroker) -> None:
    group = ConsumerGroup("of a topic that is gone", patience_ms=500)
    with connected(settings_of(broker)) as cluster, pytest.raises(MasterRefused, match="gone/0"):
        group.commit(cluster, {TopicPartition("gone", 0): Committed(Offset(1), None)})
