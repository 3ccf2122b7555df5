"""A consumer group that nobody consumes in: its committed offsets say how far the replica is.

Offsets are committed as by a group without members ("simple"), so that every tool that shows a group's lag shows ours.
What must hold: nobody else consumes with the group. The coordinator ensures this: it accepts our offsets only as long
as the group has no members. If it refuses them, the error names the members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NoReturn, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from sources.errors import MasterRefused
from sources.kafka.cluster.client_errors import check_code
from sources.kafka.cluster.connection import Cluster, ask_again
from sources.kafka.cluster.membership import check_unused, described
from sources.kafka.cluster.rights import check_group_rights
from sources.kafka.cluster.topics import TopicPartition
from sources.master import Committed
from sources.offsets import Offset

T = TypeVar("T")

_ONE_GROUP: Final = 3  # the last version of FindCoordinator that asks for one
_ONE_GROUP_FETCHED: Final = 7  # the same of OffsetFetch
_BY_NAME: Final = 9  # the last version of OffsetCommit that names topics; 10 has ids
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
        """Check that our user may commit in the group (`check_group_rights`)."""
        self._asking(lambda: check_group_rights(cluster, self.name, self._coordinator(cluster)))

    def commit(self, cluster: Cluster, positions: Mapping[TopicPartition, Committed]) -> None:
        """Tell the group's coordinator how far we are. Positions may be repeated.

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
