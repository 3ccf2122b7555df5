"""Topics out of scripted metadata: their leaders, by name and by pattern, and those that cannot be read."""

import uuid
from typing import Any

import kafka.errors as kafka_errors
import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from sources.errors import ConfigurationError, LogtwinError, MasterRefused, NoSuchTopic, ProtocolViolation, Recreated
from sources.kafka.cluster.topics import (
    Leader,
    Topic,
    TopicPartition,
    is_compacted,
    learn_topics,
    topic_known,
    topics_matching,
    topics_named,
)
from tests.sources.kafka.scripted_cluster import OTHER_ID, TOPIC_ID, ScriptedCluster, metadata, topic

UNKNOWN: int = kafka_errors.UnknownTopicOrPartitionError.errno


def test_topics_come_in_the_order_they_were_named_in_with_all_their_partitions() -> None:
    cluster = ScriptedCluster(metadata(topic("a", [(1, 0), (2, 5), (-1, 7)]), topic("b")))
    b, a = topics_named(cluster, ["b", "a", "b"])
    assert a == Topic("a", TOPIC_ID, {0: Leader(1, 0), 1: Leader(2, 5), 2: None})
    assert (b.name, b.leader(0)) == ("b", Leader(1, 0))
    ((request, _),) = cluster.asked
    assert [one.name for one in request.topics] == ["b", "a"]
    assert not request.allow_auto_topic_creation


@pytest.mark.parametrize(
    ("code", "expected", "said"),
    [
        (UNKNOWN, NoSuchTopic, "there is no topic 'a'"),
        (kafka_errors.InvalidTopicError.errno, ConfigurationError, "not the name of a topic"),
        (kafka_errors.TopicAuthorizationFailedError.errno, ConfigurationError, "not allowed to ask where topic a lies"),
        (kafka_errors.LeaderNotAvailableError.errno, MasterRefused, "where topic a lies.*LEADER_NOT_AVAILABLE"),
        (kafka_errors.MessageSizeTooLargeError.errno, ProtocolViolation, r"error 10"),
    ],
)
def test_topics_that_cannot_be_read(code: int, expected: type[LogtwinError], said: str) -> None:
    with pytest.raises(expected, match=said) as raised:
        topics_named(ScriptedCluster(metadata(topic("a", error=code))), ["a"])
    assert type(raised.value) is expected


def test_topics_are_listed_by_name_and_no_internal_one() -> None:
    known = metadata(
        topic("shop.b"), topic("shop.a"), topic("workshop.a"), topic("shop"), topic("shop.x", is_internal=True),
        topic("shop.gone", error=UNKNOWN),
    )  # fmt: skip
    cluster = ScriptedCluster(known, known)
    assert [found.name for found in topics_matching(cluster, lambda name: name.startswith("shop."))] == [
        "shop.a",
        "shop.b",
    ]
    assert topics_matching(cluster, lambda _: False) == []
    assert cluster.asked[0][0].topics is None


def test_only_topics_that_are_not_known_to_lead_what_is_wanted_are_asked_for() -> None:
    """A cached leader may have moved, and then refuses; but an id, or a partition, that is new is looked up at once."""
    a, b = topic("a", [(1, 0), (-1, 7)]), topic("b", topic_id=OTHER_ID)
    cluster = ScriptedCluster(metadata(a, b, topic("c", error=UNKNOWN)), *[metadata(a)] * 2, metadata(topic("c")))

    def asked(name: str, partition: int, topic_id: uuid.UUID | None = None) -> list[str]:
        before = len(cluster.asked)
        learn_topics(cluster, [(TopicPartition(name, partition), topic_id), (TopicPartition("b", 0), OTHER_ID)])
        return [one.name for request, _ in cluster.asked[before:] for one in request.topics]

    learn_topics(cluster, [(TopicPartition(name, 0), None) for name in "abca"])
    assert [one.name for one in cluster.asked[0][0].topics] == ["a", "b", "c"]
    assert asked("a", 0, TOPIC_ID) == []
    assert asked("a", 1) == ["a"]  # it had no leader
    assert asked("a", 0, OTHER_ID) == ["a"]
    assert topic_known(cluster, "b", OTHER_ID).leader(0) == Leader(1, 0)
    with pytest.raises(Recreated):
        topic_known(cluster, "b", TOPIC_ID)
    with pytest.raises(ConfigurationError, match="there is no topic 'c'"):
        topic_known(cluster, "c", None)
    assert asked("c", 0) == ["c"]
    assert topic_known(cluster, "c", None).id == TOPIC_ID


def cleanup_answer(policy: str | None, error: int = 0) -> Any:
    of_topic = DescribeConfigsResponse.DescribeConfigsResult
    config = of_topic.DescribeConfigsResourceResult(name="cleanup.policy", value=policy)
    configs = [] if error else [config]
    return DescribeConfigsResponse(results=[of_topic(error_code=error, configs=configs)], version=4)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact", "delete", "", None])
def test_the_policy_says_it(policy: str | None) -> None:
    cluster = ScriptedCluster(cleanup_answer(policy))
    assert is_compacted(cluster, "orders") is (policy not in ("delete", "", None))
    ((request, node_id),) = cluster.asked
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (2, "orders")
    assert (list(resource.configuration_keys), node_id) == (["cleanup.policy"], None)


def test_who_may_not_ask_is_told_what_to_grant() -> None:
    cluster = ScriptedCluster(cleanup_answer(None, kafka_errors.TopicAuthorizationFailedError.errno))
    with pytest.raises(ConfigurationError, match=r"cleanup\.policy of topic orders") as caught:
        is_compacted(cluster, "orders")
    assert "DESCRIBE_CONFIGS" in (caught.value.hint or "")
