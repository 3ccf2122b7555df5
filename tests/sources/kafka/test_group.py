"""A group asked and told through a script: the coordinator is followed, and others in the group are named."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitResponse

from sources.errors import ConfigurationError, MasterRefused
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.membership import DescribedGroup, Member, check_unused
from sources.kafka.cluster.membership import described as describe
from sources.kafka.cluster.topics import TopicPartition
from sources.master import Committed
from sources.offsets import Offset
from tests.sources.kafka.group_answers import (
    ALICE,
    LOADING,
    NOT_FOUND,
    UNKNOWN_MEMBER,
    coordinator,
    described,
    described_newer,
    listed,
)
from tests.sources.kafka.scripted_cluster import ScriptedCluster

POSITION = {TopicPartition("t", 0): Committed(Offset(3), None)}


def told(error: int) -> Any:
    of_topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = of_topic.OffsetCommitResponsePartition(partition_index=0, error_code=error)
    return OffsetCommitResponse(topics=[of_topic(name="t", partitions=[partition])], version=9)


def test_the_coordinator_is_asked_and_asked_again_while_it_loads() -> None:
    cluster = ScriptedCluster(
        coordinator(error=LOADING), coordinator(), described(error=LOADING), coordinator(5), described("Empty")
    )
    ConsumerGroup("g", patience_ms=60_000).check(cluster)
    assert [node for _, node in cluster.asked] == [None, None, 4, None, 5]
    with pytest.raises(MasterRefused, match="who coordinates group g"):
        ConsumerGroup("g", patience_ms=0).check(ScriptedCluster(coordinator(error=LOADING)))


def test_a_commit_refused_for_members_who_left_is_repeated() -> None:
    cluster = ScriptedCluster(
        coordinator(), told(UNKNOWN_MEMBER), coordinator(), described("Empty"), coordinator(), told(0)
    )
    ConsumerGroup("g").commit(cluster, POSITION)
    assert cluster.is_done


@pytest.mark.parametrize(
    "group",
    [None, DescribedGroup("Empty", "", ()), DescribedGroup("Empty", "consumer", ()), DescribedGroup("Dead", "", ())],
)
def test_a_group_that_nobody_is_in_can_be_used(group: DescribedGroup | None) -> None:
    check_unused("g", group)


def test_members_are_named_with_client_and_host() -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_unused("g", DescribedGroup("Stable", "consumer", (ALICE, Member("b", "bob", "/10.0.0.8"))))
    assert str(raised.value) == (
        "group g is consumed by others; expected a group without members, found alice-1 (client 'alice' at 10.0.0.7), "
        "b (client 'bob' at 10.0.0.8). Offsets of two would overwrite each other: choose a name of its own, or stop "
        "them."
    )


def test_a_group_that_is_being_joined_is_consumed_by_others() -> None:
    with pytest.raises(ConfigurationError, match="a group that is PreparingRebalance"):
        check_unused("g", DescribedGroup("PreparingRebalance", "consumer", ()))


@pytest.mark.parametrize("kind", ["connect", "share", "streams"])
def test_a_group_of_another_type_is_refused_also_when_nobody_is_in_it(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=f"protocol type {kind}"):
        check_unused("g", DescribedGroup("Empty", kind, ()))


def test_a_group_of_the_classic_protocol_is_described_at_once() -> None:
    cluster = ScriptedCluster(described("Stable", (ALICE,)))
    assert describe(cluster, 4, "g") == DescribedGroup("Stable", "consumer", (ALICE,))
    assert [node for _, node in cluster.asked] == [4]


@pytest.mark.parametrize("not_classic", [described(error=NOT_FOUND), described("Dead")])
def test_a_group_of_the_newer_protocol_is_looked_up_in_the_list(not_classic: object) -> None:
    none_yet = ScriptedCluster(not_classic, listed(("other", "consumer", "Stable")))
    assert describe(none_yet, 4, "g") is None
    empty = ScriptedCluster(not_classic, listed(("g", "consumer", "Empty")))
    assert describe(empty, 4, "g") == DescribedGroup("Empty", "consumer", ())
    shared = ScriptedCluster(not_classic, listed(("g", "share", "Stable")))
    assert describe(shared, 4, "g") == DescribedGroup("Stable", "share", ())
    consumed = ScriptedCluster(not_classic, listed(("g", "consumer", "Stable")), described_newer(ALICE))
    assert describe(consumed, 4, "g") == DescribedGroup("Stable", "consumer", (ALICE,))
