"""A consumer group that nobody consumes in: its committed offsets say how far the replica is.

Offsets are committed as by a group without members ("simple"), so that every tool that shows a group's lag shows ours.
What must hold: nobody else consumes with the group. The coordinator ensures this: it accepts our offsets only as long
as the group has no members. If it refuses them, the error names the members.

A broker describes groups of the classic protocol and of the newer one (KIP-848) in different answers; the list of
groups says which protocol a group has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NoReturn, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from sources.errors import ConfigurationError, MasterRefused
from sources.kafka.cluster.client_errors import check_code
from sources.kafka.cluster.connection import Cluster, ask_again
from sources.kafka.cluster.topics import TopicPartition, check_rights
from sources.master import Committed
from sources.offsets import Offset

CONSUMER: Final = "consumer"
"""The protocol type of consumer groups. A group that only ever had offsets committed has none."""

_SCHEMAS: Final = "sources.kafka.cluster"
"""Where kafka-python finds messages that it lacks, in its own schema notation."""
_WITH_STATES: Final = 4  # the first version of ListGroups that tells them
_EMPTY: Final = "Empty"
_GONE: Final = ("", "Dead")


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc] # without types
    """Asks for the members of groups of the newer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc] # without types
    """The answer to ConsumerGroupDescribeRequest."""


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer: its id in the group, its client id, and where it connects from."""

    id: str
    client: str
    host: str

    def __str__(self) -> str:
        return f"{self.id} (client {self.client!r} at {self.host.lstrip('/')})"


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as its coordinator describes it."""

    state: str
    protocol_type: str
    members: tuple[Member, ...]


def described(cluster: Cluster, coordinator: int, name: str) -> DescribedGroup | None:
    """Return the group `name`; None if it does not exist.

    Raises MasterRefused (it is not the coordinator, or is loading), ConfigurationError (not allowed), and as
    `Cluster.call` does.
    """
    found = cluster.call(DescribeGroupsRequest(groups=[name]), coordinator).groups[0]
    if found.error_code == kafka_errors.GroupIdNotFoundError.errno:
        return _listed(cluster, coordinator, name)
    members = _members(found, name)
    if found.group_state in _GONE:  # how brokers before Kafka 4 describe a missing group
        return _listed(cluster, coordinator, name)
    return DescribedGroup(found.group_state, found.protocol_type, members)


def check_unused(name: str, group: DescribedGroup | None) -> None:
    """Raise ConfigurationError if others consume with `group`, or could; None means that it does not exist yet."""
    if group is None:
        return
    if group.protocol_type not in ("", CONSUMER):
        raise ConfigurationError(
            f"group {name} is none of consumers",
            expected="a group of its own",
            found=f"protocol type {group.protocol_type}",
            hint="Choose another name.",
        )
    if group.members or group.state not in (_EMPTY, *_GONE):
        raise ConfigurationError(
            f"group {name} is consumed by others",
            expected="a group without members",
            found=", ".join(map(str, group.members)) or f"a group that is {group.state}",
            hint="Offsets of two would overwrite each other: choose a name of its own, or stop them.",
        )


def _listed(cluster: Cluster, coordinator: int, name: str) -> DescribedGroup | None:
    """Return the group if it is not of the classic protocol."""
    answer = cluster.call(ListGroupsRequest(min_version=_WITH_STATES), coordinator)
    check_code(answer.error_code, "which groups there are")
    listed = next((group for group in answer.groups if group.group_id == name), None)
    if listed is None:
        return None
    is_described = listed.protocol_type == CONSUMER and listed.group_state not in (_EMPTY, *_GONE)
    members: tuple[Member, ...] = ()
    if is_described:
        (found,) = cluster.call(ConsumerGroupDescribeRequest(group_ids=[name]), coordinator).groups
        members = _members(found, name)
    return DescribedGroup(listed.group_state, listed.protocol_type, members)


def _members(group: Any, name: str) -> tuple[Member, ...]:
    check_code(group.error_code, f"who is in group {name}")
    return tuple(Member(one.member_id, one.client_id, one.client_host) for one in group.members)


T = TypeVar("T")

_ONE_GROUP: Final = 3  # the last version of FindCoordinator that asks for one
_ONE_GROUP_FETCHED: Final = 7  # the same of OffsetFetch
_BY_NAME: Final = 9  # the last version of OffsetCommit that names topics; 10 has ids
_WITH_RIGHTS: Final = 3  # the first version of DescribeGroups that tells them
_GONE_IS_NO_ERROR: Final = 5  # its last version that describes a group that does not exist yet
_WITH_EPOCHS_COMMITTED: Final = 6
_WITH_EPOCHS_FETCHED: Final = 5
_NOT_OURS: Final = frozenset(
    error.errno
    for error in (
        kafka_errors.UnknownMemberIdError,
        kafka_errors.IllegalGenerationError,
        kafka_errors.FencedInstanceIdError,
        kafka_errors.StaleMemberEpochError,
        kafka_errors.FencedMemberEpochError,
        kafka_errors.RebalanceInProgressError,
        kafka_errors.GroupIdNotFoundError,  # a kind of group that keeps no such offsets
    )
)
"""The codes that refuse a commit because others use the group."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The group `name`. A coordinator that is loading or moving is asked again for `patience_ms`."""

    name: str
    patience_ms: int = 10_000

    def check(self, cluster: Cluster) -> None:
        """Check that nobody else consumes with the group.

        Raises ConfigurationError naming who does, or the group's type; and as `Cluster.call` does.
        """
        self._asking(lambda: self._check(cluster))

    def check_rights(self, cluster: Cluster) -> None:
        """Raise ConfigurationError if our user may not commit in the group, and as `Cluster.call` does."""
        self._asking(lambda: self._check_rights(cluster))

    def commit(self, cluster: Cluster, positions: Mapping[TopicPartition, Committed]) -> None:
        """Commit our positions to the group. They may be repeated.

        Raises as `check` does if the coordinator refuses because of others.
        """
        if positions:
            self._asking(lambda: self._commit(cluster, positions))

    def committed(self, cluster: Cluster, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """Return what is committed of `tps`, without those that have nothing. Raises as `Cluster.call` does."""
        wanted = list(tps)
        return self._asking(lambda: self._committed(cluster, wanted)) if wanted else {}

    def _asking(self, question: Callable[[], T]) -> T:
        return ask_again(question, patience_ms=self.patience_ms)

    def _coordinator(self, cluster: Cluster) -> int:
        request = FindCoordinatorRequest(key=self.name, key_type=CoordinatorType.GROUP, max_version=_ONE_GROUP)
        answer = cluster.call(request)
        check_code(answer.error_code, f"who coordinates group {self.name}")
        return int(answer.node_id)

    def _check(self, cluster: Cluster) -> None:
        check_unused(self.name, described(cluster, self._coordinator(cluster), self.name))

    def _check_rights(self, cluster: Cluster) -> None:
        request = DescribeGroupsRequest(
            groups=[self.name],
            include_authorized_operations=True,
            min_version=_WITH_RIGHTS,
            max_version=_GONE_IS_NO_ERROR,
        )
        (found,) = cluster.call(request, self._coordinator(cluster)).groups
        check_rights(found.error_code, found.authorized_operations, f"group {self.name}")

    def _commit(self, cluster: Cluster, positions: Mapping[TopicPartition, Committed]) -> None:
        request = OffsetCommitRequest(
            group_id=self.name,
            topics=[_told(topic, {tp: positions[tp] for tp in tps}) for topic, tps in _by_topic(positions)],
            min_version=_WITH_EPOCHS_COMMITTED,
            max_version=_BY_NAME,
        )
        for topic in cluster.call(request, self._coordinator(cluster)).topics:
            for partition in topic.partitions:
                if partition.error_code in _NOT_OURS:
                    self._refuse(cluster)
                tp = TopicPartition(topic.name, partition.partition_index)
                check_code(partition.error_code, f"to keep the offset of {tp} for group {self.name}")

    def _refuse(self, cluster: Cluster) -> NoReturn:
        self._check(cluster)
        raise MasterRefused(f"group {self.name} had members a moment ago")

    def _committed(self, cluster: Cluster, tps: list[TopicPartition]) -> dict[TopicPartition, Committed]:
        asked = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(
            group_id=self.name,
            topics=[
                asked(name=topic, partition_indexes=[tp.partition for tp in of_topic])
                for topic, of_topic in _by_topic(tps)
            ],
            min_version=_WITH_EPOCHS_FETCHED,
            max_version=_ONE_GROUP_FETCHED,
        )
        answer = cluster.call(request, self._coordinator(cluster))
        check_code(answer.error_code, f"what is committed in group {self.name}")
        return dict(_found(answer.topics))


def _by_topic(tps: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    for topic, of_topic in groupby(sorted(tps), key=lambda tp: tp.topic):
        yield topic, list(of_topic)


def _told(topic: str, positions: Mapping[TopicPartition, Committed]) -> Any:
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        asked.OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=-1 if committed.mark is None else committed.mark,
            committed_metadata="",
        )
        for tp, committed in positions.items()
    ]
    return asked(name=topic, partitions=partitions)


def _found(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Committed]]:
    for topic in topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            check_code(partition.error_code, f"what is committed of {tp}")
            if partition.committed_offset >= 0:
                epoch = partition.committed_leader_epoch
                yield tp, Committed(Offset(partition.committed_offset), None if epoch < 0 else epoch)
