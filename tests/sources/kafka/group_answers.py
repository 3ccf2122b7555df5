"""Answers of a group's coordinator, for scripts."""

from typing import Any

from kafka.protocol.admin import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse

from sources.kafka.cluster.group import ConsumerGroupDescribeResponse, Member

LOADING, UNKNOWN_MEMBER, NOT_FOUND = 14, 25, 69
ALICE = Member("alice-1", "alice", "/10.0.0.7")


def coordinator(node_id: int = 4, error: int = 0) -> Any:
    return FindCoordinatorResponse(node_id=node_id, error_code=error, version=3)


def described(state: str = "", members: tuple[Member, ...] = (), error: int = 0) -> Any:
    of_group = DescribeGroupsResponse.DescribedGroup
    found = of_group(
        group_id="g", group_state=state, protocol_type="consumer", error_code=error,
        members=[
            of_group.DescribedGroupMember(member_id=one.id, client_id=one.client, client_host=one.host)
            for one in members
        ],
    )  # fmt: skip
    return DescribeGroupsResponse(groups=[found], version=5)


def listed(*groups: tuple[str, str, str]) -> Any:
    of_group = ListGroupsResponse.ListedGroup
    found = [of_group(group_id=name, protocol_type=kind, group_state=state) for name, kind, state in groups]
    return ListGroupsResponse(groups=found, version=5)


def described_newer(*members: Member) -> Any:
    of_group = ConsumerGroupDescribeResponse.DescribedGroup
    found = [of_group.Member(member_id=one.id, client_id=one.client, client_host=one.host) for one in members]
    return ConsumerGroupDescribeResponse(groups=[of_group(group_id="g", members=found)], version=0)


def committed(**at: int) -> Any:
    """The answer of a group's coordinator; -1 is what it says of a partition that nothing is committed of."""
    of_topic = OffsetFetchResponse.OffsetFetchResponseTopic
    partitions = [
        of_topic.OffsetFetchResponsePartition(
            partition_index=int(name[1:]), committed_offset=offset, committed_leader_epoch=-1, error_code=0
        )
        for name, offset in at.items()
    ]
    return OffsetFetchResponse(topics=[of_topic(name="t", partitions=partitions)], error_code=0, version=7)
