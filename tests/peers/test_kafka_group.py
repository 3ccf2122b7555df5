"""The consumer group at real brokers: what we commit is what Kafka's tools see, and others in the group are named."""

from functools import partial

import pytest

from sources.errors import ConfigurationError, MasterRefused
from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.topics import TopicPartition
from sources.master import Committed
from sources.offsets import Offset
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_groups import java_member
from tests.peers.kafka_reading import settings_of
from tests.peers.kafka_traffic import Record, create_topic, producer, send

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def broker(each_kafka: KafkaBroker) -> KafkaBroker:
    create_topic(each_kafka, "a")
    with producer(each_kafka) as through:
        send(through, "a", [Record(b"%d" % number) for number in range(10)])
    return each_kafka


A0 = TopicPartition("a", 0)


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
