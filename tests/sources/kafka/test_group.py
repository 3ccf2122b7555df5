"""A group asked and told through a script: the coordinator is followed, and others in the group are named."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitResponse

from sources.errors import MasterRefused
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.topics import TopicPartition
from sources.master import Committed
from sources.offsets import Offset
from tests.sources.kafka.group_answers import LOADING, UNKNOWN_MEMBER, coordinator, described
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
