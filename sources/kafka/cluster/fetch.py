"""One fetch request to a broker for many partitions that it leads, and what its answer says besides the records.

Topics are requested by their ids, so no answer is of another topic with the same name. The request names the leader's
epoch (KIP-320) and, if known, the epoch of what was read last: a leader whose log diverged says so.

A broker fills its answer in the order of the request, up to a limit for each partition and one for all together. The
first of them that has anything gets at least one whole batch; those behind it may get nothing, however much they have
(KIP-74).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from sources.bounds import check_within
from sources.errors import LogtwinError, MasterRefused
from sources.kafka.bounds import bounds_at, epoch_end
from sources.kafka.cluster.client_errors import check_code
from sources.kafka.cluster.connection import Cluster
from sources.kafka.cluster.topics import Leader, TopicPartition
from sources.kafka.epochs import EpochEnd, check_history
from sources.kafka.format.transactions import Aborted, Isolation
from sources.offsets import Offset, OffsetRange

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
    """Send `questions` to their leader, and return what waits for the answers to them: about `max_bytes` in all.

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
    if isinstance(found, LogtwinError):
        raise found
    return found


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
    """Raise what the leader says against going on from the requested offset."""
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
