"""The bounds between which a partition can be read now, and where an epoch of its leaders ended.

For readers of committed records the end is the last stable offset, below which no transaction is open; for others it is
the high watermark. Each is requested from the leader, with its epoch: a broker that no longer leads, or does not lead
yet, refuses (KIP-207, KIP-320) instead of giving an end that goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest, OffsetSpec

from sources.errors import LogtwinError, MasterRefused
from sources.kafka.cluster.client_errors import NONE, refusal
from sources.kafka.cluster.connection import Cluster
from sources.kafka.cluster.topics import Leader, Topic, TopicPartition
from sources.kafka.epochs import EpochEnd
from sources.kafka.format.transactions import Isolation
from sources.offsets import Offset, OffsetRange

T = TypeVar("T")

WITH_EPOCHS: Final = 4
"""The first version of the request for offsets that names the epoch in which the leader is thought to be."""

TIERED_TIMEOUT_MS: Final = 10_000


def bounds(
    cluster: Cluster, topic: Topic, isolation: Isolation, partitions: Iterable[int] | None = None
) -> dict[int, OffsetRange]:
    """Return what can be read of `partitions` (None: of all), with two requests to each leader.

    Raises as `bounds_of_each` does, and the first of its errors.
    """
    return {at: _sound(one) for at, one in bounds_of_each(cluster, topic, isolation, partitions).items()}


def bounds_of_each(
    cluster: Cluster, topic: Topic, isolation: Isolation, partitions: Iterable[int] | None = None
) -> dict[int, OffsetRange | LogtwinError]:
    """The same, with the error of each partition that has one: those of `bounds_of`, or MasterRefused without a leader.

    Raises ConfigurationError for a partition that does not exist, and as `Cluster.call` does.
    """
    leaders: dict[int, Leader] = {}
    found: dict[int, OffsetRange | LogtwinError] = {}
    for partition in topic.leaders if partitions is None else partitions:
        try:
            leaders[partition] = topic.leader(partition)
        except MasterRefused as error:
            found[partition] = error
    for node_id, epochs in _by_node(leaders):
        leading = {TopicPartition(topic.name, at): epoch for at, epoch in epochs.items()}
        held = bounds_of(cluster, node_id, leading, isolation)
        found |= {tp.partition: one for tp, one in held.items()}
    return dict(sorted(found.items()))


def bounds_of(
    cluster: Cluster, node_id: int, leading: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, OffsetRange | LogtwinError]:
    """Return what broker `node_id` has to read of the partitions that it leads, `leading` with the epoch of each.

    That of a partition may be an error: MasterRefused (the broker does not lead it, or has not caught up),
    ConfigurationError (not allowed). Raises as `Cluster.call` does.
    """
    # The starts first: they only grow, so a deletion meanwhile cannot put a start above its end.
    starts = _offsets(cluster, node_id, leading, OffsetSpec.EARLIEST, isolation)
    begun = {tp: epoch for tp, epoch in leading.items() if not isinstance(starts[tp], LogtwinError)}
    ends = _offsets(cluster, node_id, begun, OffsetSpec.LATEST, isolation) if begun else {}
    return {tp: _range(tp, start, ends.get(tp, start)) for tp, start in starts.items()}


def bounds_at(cluster: Cluster, leader: Leader, tp: TopicPartition, isolation: Isolation) -> OffsetRange:
    """Return what `leader` has to read of one partition.

    Raises MasterRefused (it does not lead, or has not caught up), ConfigurationError (not allowed), and as
    `Cluster.call` does.
    """
    return _sound(bounds_of(cluster, leader.node_id, {tp: leader.epoch}, isolation)[tp])


def epoch_end(cluster: Cluster, leader: Leader, tp: TopicPartition, epoch: int) -> EpochEnd:
    """Return where `epoch`, or else the largest one below it, ends in the leader's log (KIP-320).

    Raises as `bounds_at` does.
    """
    leading = {tp.partition: leader.epoch}
    return _sound(_epoch_ends(cluster, leader.node_id, tp.topic, leading, {tp.partition: epoch})[tp.partition])


def epoch_ends(cluster: Cluster, topic: Topic, epochs: Mapping[int, int]) -> dict[int, EpochEnd | LogtwinError]:
    """Return the ends for several partitions, each with an epoch of its own, with one request to each leader.

    That of a partition may be an error. Raises MasterRefused for one without a leader, and as `bounds_of_each` does.
    """
    found: dict[int, EpochEnd | LogtwinError] = {}
    for node_id, leading in _by_node({partition: topic.leader(partition) for partition in epochs}):
        found |= _epoch_ends(cluster, node_id, topic.name, leading, epochs)
    return found


def _by_node(leaders: Mapping[int, Leader]) -> Iterator[tuple[int, dict[int, int]]]:
    """Yield each leading broker with its partitions and the epoch in which it leads each."""
    for node_id in sorted({leader.node_id for leader in leaders.values()}):
        yield node_id, {at: leader.epoch for at, leader in leaders.items() if leader.node_id == node_id}


def _epoch_ends(
    cluster: Cluster, node_id: int, topic: str, leading: Mapping[int, int], epochs: Mapping[int, int]
) -> dict[int, EpochEnd | LogtwinError]:
    """Return, for the partitions in `leading` (with the epoch of the leader), where the epoch in `epochs` ended."""
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partitions = [
        asked.OffsetForLeaderPartition(partition=at, current_leader_epoch=led_in, leader_epoch=epochs[at])
        for at, led_in in leading.items()
    ]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked(topic=topic, partitions=partitions)])
    found = cluster.call(request, node_id).topics[0].partitions
    return {
        one.partition: EpochEnd(one.leader_epoch, Offset(one.end_offset))
        if one.error_code == NONE
        else refusal(one.error_code, f"where epoch {epochs[one.partition]} of {topic}/{one.partition} ended")
        for one in found
    }


def _sound(found: T | LogtwinError) -> T:
    if isinstance(found, LogtwinError):
        raise found
    return found


def _range(tp: TopicPartition, start: Offset | LogtwinError, end: Offset | LogtwinError) -> OffsetRange | LogtwinError:
    if isinstance(start, LogtwinError):
        return start
    if isinstance(end, LogtwinError):
        return end
    if end < start:
        return MasterRefused(f"the log of {tp} ends below its start", expected=f"{start} or more", found=end)
    return OffsetRange(start, end)


def _offsets(
    cluster: Cluster, node_id: int, leading: Mapping[TopicPartition, int], spec: OffsetSpec, isolation: Isolation
) -> dict[TopicPartition, Offset | LogtwinError]:
    """Ask, in one request, for the offset of `spec` by partition. `leading` has the leader's epoch of each."""
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    asked: dict[str, list[Any]] = {}
    for tp, epoch in leading.items():
        one = of_topic.ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=spec)
        asked.setdefault(tp.topic, []).append(one)
    request = ListOffsetsRequest(
        isolation_level=isolation.value,
        topics=[of_topic(name=name, partitions=partitions) for name, partitions in asked.items()],
        timeout_ms=TIERED_TIMEOUT_MS,
        min_version=WITH_EPOCHS,
    )
    answer = cluster.call(request, node_id).topics
    found = {TopicPartition(of.name, one.partition_index): one for of in answer for one in of.partitions}
    return {tp: _offset(tp, found[tp]) for tp in leading}


def _offset(tp: TopicPartition, found: Any) -> Offset | LogtwinError:
    if found.error_code != NONE:
        return refusal(found.error_code, f"what it holds of {tp}")
    return Offset(found.offset)
