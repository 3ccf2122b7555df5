"""What the leaders of partitions are asked: what can be read of each, where an epoch ended, and the records.

For readers of committed records a log ends at the last stable offset, below which no transaction is open; for others at
the high watermark. Every request names the leader's epoch: a broker that no longer leads, or does not lead yet, refuses
(KIP-207, KIP-320) instead of giving an end that goes back.

One fetch is for many partitions that a broker leads. Topics are requested by their ids, so no answer is of another
topic with the same name. If known, the epoch of what was read last is named, too: a leader whose log diverged says so.
A broker fills its answer in the order of the request, up to a limit for each partition and one for all together. The
first of them that has anything gets at least one whole batch; those behind it may get nothing, however much they have
(KIP-74).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, OffsetSpec

from sources.bounds import check_within
from sources.errors import LogtwinError, MasterRefused
from sources.kafka.cluster.client_errors import NONE, check_code, refusal, sound
from sources.kafka.cluster.connection import Cluster
from sources.kafka.cluster.settings import Isolation
from sources.kafka.cluster.topics import Leader, Topic, TopicPartition
from sources.kafka.epochs import EpochEnd, check_history
from sources.kafka.format.transactions import Aborted
from sources.offsets import Offset, OffsetRange

WITH_EPOCHS: Final = 4
"""The first version of the request for offsets that names the epoch in which the leader is thought to be."""

TIERED_TIMEOUT_MS: Final = 10_000


def bounds(
    cluster: Cluster, topic: Topic, isolation: Isolation, partitions: Iterable[int] | None = None
) -> dict[int, OffsetRange]:
    """Return the bounds of `partitions` (None: of all), with two requests to each leader.

    Raises as `bounds_of_each` does, and the first of its errors.
    """
    return {at: sound(one) for at, one in bounds_of_each(cluster, topic, isolation, partitions).items()}


def bounds_of_each(
    cluster: Cluster, topic: Topic, isolation: Isolation, partitions: Iterable[int] | None = None
) -> dict[int, OffsetRange | LogtwinError]:
    """Like `bounds`, with the error of each partition that has one: `bounds_of`'s, or MasterRefused without a leader.

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
    """Return the bounds of partitions that broker `node_id` leads; `leading` has the epoch of each.

    A partition may have an error instead: MasterRefused (the broker does not lead it, or has not caught up),
    ConfigurationError (not allowed). Raises as `Cluster.call` does.
    """
    # The starts first: they only grow, so a deletion meanwhile cannot put a start above its end.
    starts = _offsets(cluster, node_id, leading, OffsetSpec.EARLIEST, isolation)
    begun = {tp: epoch for tp, epoch in leading.items() if not isinstance(starts[tp], LogtwinError)}
    ends = _offsets(cluster, node_id, begun, OffsetSpec.LATEST, isolation) if begun else {}
    return {tp: _range(tp, start, ends.get(tp, start)) for tp, start in starts.items()}


def bounds_at(cluster: Cluster, leader: Leader, tp: TopicPartition, isolation: Isolation) -> OffsetRange:
    """Return the bounds of one partition.

    Raises MasterRefused (it does not lead, or has not caught up), ConfigurationError (not allowed), and as
    `Cluster.call` does.
    """
    return sound(bounds_of(cluster, leader.node_id, {tp: leader.epoch}, isolation)[tp])


def epoch_end(cluster: Cluster, leader: Leader, tp: TopicPartition, epoch: int) -> EpochEnd:
    """Return where `epoch`, or else the largest one below it, ends in the leader's log (KIP-320).

    Raises as `bounds_at` does.
    """
    leading = {tp.partition: leader.epoch}
    return sound(_epoch_ends(cluster, leader.node_id, tp.topic, leading, {tp.partition: epoch})[tp.partition])


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


BY_TOPIC_ID: Final = 13
"""The version of the request that names topics by id (Kafka 3.1); later ones add what replicas need."""

_MAX_WAIT_MS: Final = 500
_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class FetchQuestion:
    """What to fetch of one partition: from `offset` on, about `max_bytes`.

    `last_epoch` is the leader epoch of what lies before, if known. No two questions of a request may be of one
    partition.
    """

    tp: TopicPartition
    topic_id: uuid.UUID
    leader: Leader
    offset: Offset
    max_bytes: int
    last_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The answer: batches as they lie in the log, the last one perhaps cut off, and where the log ended.

    The first batch holds the requested offset, or is the first one above it; it comes whole, however large it is.
    `aborted` are the aborted transactions that touch the records; without isolation there are none.
    """

    records: bytes
    aborted: tuple[Aborted, ...]
    high_watermark: Offset
    last_stable: Offset


Fetched = FetchedBatches | LogtwinError


def in_order(questions: Sequence[FetchQuestion]) -> list[int]:
    """Return the indexes of `questions` in the order in which a request holds them: topic after topic."""
    by_topic: dict[uuid.UUID, list[int]] = {}
    for number, one in enumerate(questions):
        by_topic.setdefault(one.topic_id, []).append(number)
    return [number for numbers in by_topic.values() for number in numbers]


def fetch(
    cluster: Cluster, node_id: int, questions: Sequence[FetchQuestion], *, max_bytes: int, isolation: Isolation
) -> Callable[[], list[Fetched]]:
    """Send `questions` to their leader; return a function that waits for their answers, about `max_bytes` in all.

    The broker waits half a second if there is nothing yet. An answer is BelowMinimum or AboveMaximum saying what the
    leader holds, Rewritten if its log branched off before the offset, MasterRefused (it does not lead, or not in this
    epoch; or there is no such topic id), ConfigurationError (not allowed).

    Waiting raises MasterRefused if the broker throttles us, and as `Cluster.call` does.
    """
    wait = cluster.send(_request(questions, max_bytes, isolation), node_id)

    def answers() -> list[Fetched]:
        found = _by_partition(wait())
        return [_answer(cluster, one, found) for one in questions]

    return answers


def fetch_one(cluster: Cluster, question: FetchQuestion, isolation: Isolation) -> FetchedBatches:
    """Return the answer to one question. Raises it if it is an error, and as waiting for `fetch` does."""
    most = question.max_bytes
    (found,) = fetch(cluster, question.leader.node_id, [question], max_bytes=most, isolation=isolation)()
    return sound(found)


def _request(questions: Sequence[FetchQuestion], max_bytes: int, isolation: Isolation) -> FetchRequest:
    topics: dict[uuid.UUID, list[FetchRequest.FetchTopic.FetchPartition]] = {}
    for one in questions:
        asked = FetchRequest.FetchTopic.FetchPartition(
            partition=one.tp.partition,
            current_leader_epoch=one.leader.epoch,
            fetch_offset=one.offset,
            last_fetched_epoch=_NO_EPOCH if one.last_epoch is None else one.last_epoch,
            partition_max_bytes=min(one.max_bytes, max_bytes),
        )
        topics.setdefault(one.topic_id, []).append(asked)
    return FetchRequest(
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation.value,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=asked) for topic_id, asked in topics.items()],
        min_version=BY_TOPIC_ID,
        max_version=BY_TOPIC_ID,
    )


def _by_partition(answer: Any) -> Mapping[tuple[uuid.UUID, int], Any]:
    """Return the parts of an answer by topic id and partition. A broker that throttles us answers without any."""
    check_code(answer.error_code, "a fetch")
    if not answer.responses:
        raise MasterRefused("the broker throttles us", hint="Is there a quota on our user or client id?")
    return {(of.topic_id, one.partition_index): one for of in answer.responses for one in of.partitions}


def _answer(cluster: Cluster, asked: FetchQuestion, found: Mapping[tuple[uuid.UUID, int], Any]) -> Fetched:
    part = found.get((asked.topic_id, asked.tp.partition))
    try:
        if part is None:
            raise MasterRefused(f"the broker's answer lacks {asked.tp}", offset=asked.offset)
        _check(cluster, asked, part)
    except LogtwinError as error:
        return error
    aborted = part.aborted_transactions or ()  # null if nothing is left out
    return FetchedBatches(
        records=part.records or b"",
        aborted=tuple(Aborted(one.producer_id, Offset(one.first_offset)) for one in aborted),
        high_watermark=Offset(part.high_watermark),
        last_stable=Offset(part.last_stable_offset),
    )


def _check(cluster: Cluster, asked: FetchQuestion, part: Any) -> None:
    """Raise the leader's error for the requested offset, if there is one."""
    if part.error_code == kafka_errors.OffsetOutOfRangeError.errno:
        _refuse_out_of_range(cluster, asked)
    check_code(part.error_code, f"what follows in {asked.tp}", offset=asked.offset)
    if part.diverging_epoch is not None and part.diverging_epoch.end_offset >= 0:
        diverging = EpochEnd(part.diverging_epoch.epoch, Offset(part.diverging_epoch.end_offset))
        check_history(asked.last_epoch, asked.offset, diverging, _bounds(cluster, asked), None)
    if part.log_start_offset > asked.offset:
        here = OffsetRange(asked.offset, asked.offset)
        check_within(here, OffsetRange(part.log_start_offset, part.high_watermark), kind="kafka")


def _refuse_out_of_range(cluster: Cluster, asked: FetchQuestion) -> NoReturn:
    """Raise the error for an offset out of range. If the leader holds it, the leader does not know the epoch."""
    held, offset, epoch = _bounds(cluster, asked), asked.offset, asked.last_epoch
    check_within(OffsetRange(offset, offset), held, kind="kafka")
    if epoch is not None:
        check_history(epoch, offset, epoch_end(cluster, asked.leader, asked.tp, epoch), held, None)
    raise MasterRefused("the broker says that this offset is out of range, but holds it", offset=offset, found=held)


def _bounds(cluster: Cluster, asked: FetchQuestion) -> OffsetRange:
    return bounds_at(cluster, asked.leader, asked.tp, Isolation.READ_UNCOMMITTED)
