"""One fetch request to a partition's leader, and what its answer says besides the records.

The topic is requested by its id, so the answer is never of another topic with the same name. The request names the
leader's epoch (KIP-320) and, if known, the epoch of what was read last: a leader whose log diverged says so.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from sources.bounds import check_within
from sources.errors import MasterRefused
from sources.kafka.bounds import bounds_at, epoch_end
from sources.kafka.cluster.codes import check_code
from sources.kafka.cluster.connection import Cluster
from sources.kafka.cluster.topics import Leader, TopicPartition
from sources.kafka.epochs import EpochEnd, check_history
from sources.kafka.format.aborted import Aborted
from sources.kafka.isolation import Isolation
from sources.offsets import Offset, OffsetRange

BY_TOPIC_ID: Final = 13
"""The version of the request that names topics by id (Kafka 3.1); later ones add what replicas need."""

_MAX_WAIT_MS: Final = 500
_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The answer: batches as they lie in the log, the last one perhaps cut off, and where the log ended.

    The first batch holds the requested offset, or is the first one above it; it comes whole, however large it is.
    `aborted` are the aborted transactions that touch the records; without isolation there are none.
    """

    records: bytes
    aborted: tuple[Aborted, ...]
    log_start: Offset
    high_watermark: Offset
    last_stable: Offset


def fetch(
    cluster: Cluster,
    leader: Leader,
    tp: TopicPartition,
    offset: Offset,
    *,
    topic_id: uuid.UUID,
    max_bytes: int,
    isolation: Isolation,
    last_epoch: int | None = None,
) -> FetchedBatches:
    """Fetch what the leader has from `offset` on, about `max_bytes`. Waits half a second if there is nothing yet.

    `last_epoch` is the leader epoch of what lies before `offset`. Raises BelowMinimum and AboveMaximum saying what the
    leader holds, Rewritten if its log branched off before `offset`, MasterRefused (it does not lead, or not in this
    epoch; or there is no such topic id), ConfigurationError (not allowed), and as `Cluster.call` does.
    """
    request = FetchRequest(
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation.value,
        topics=[_wanted(leader, tp, offset, topic_id, max_bytes, last_epoch)],
        min_version=BY_TOPIC_ID,
        max_version=BY_TOPIC_ID,
    )
    found = _ask(cluster, leader, request)
    if found.error_code == kafka_errors.OffsetOutOfRangeError.errno:
        _refuse_out_of_range(cluster, leader, tp, offset, last_epoch)
    check_code(found.error_code, f"what follows in {tp}", offset=offset)
    if found.diverging_epoch is not None and found.diverging_epoch.end_offset >= 0:
        diverging = EpochEnd(found.diverging_epoch.epoch, Offset(found.diverging_epoch.end_offset))
        check_history(last_epoch, offset, diverging, _bounds(cluster, leader, tp), None)
    if found.log_start_offset > offset:
        check_within(
            OffsetRange(offset, offset), OffsetRange(found.log_start_offset, found.high_watermark), kind="kafka"
        )
    return _fetched(found)


def _wanted(
    leader: Leader, tp: TopicPartition, offset: Offset, topic_id: uuid.UUID, max_bytes: int, last_epoch: int | None
) -> FetchRequest.FetchTopic:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=tp.partition,
        current_leader_epoch=leader.epoch,
        fetch_offset=offset,
        last_fetched_epoch=_NO_EPOCH if last_epoch is None else last_epoch,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])


def _ask(cluster: Cluster, leader: Leader, request: FetchRequest) -> Any:
    """Return the part of the answer for the one partition. A broker that throttles us answers without it."""
    answer = cluster.call(request, leader.node_id)
    check_code(answer.error_code, "a fetch")
    if not answer.responses:
        raise MasterRefused("the broker throttles us", hint="Is there a quota on our user or client id?")
    return answer.responses[0].partitions[0]


def _fetched(found: Any) -> FetchedBatches:
    aborted = found.aborted_transactions or ()  # null if nothing is left out
    return FetchedBatches(
        records=found.records or b"",
        aborted=tuple(Aborted(one.producer_id, Offset(one.first_offset)) for one in aborted),
        log_start=Offset(found.log_start_offset),
        high_watermark=Offset(found.high_watermark),
        last_stable=Offset(found.last_stable_offset),
    )


def _refuse_out_of_range(
    cluster: Cluster, leader: Leader, tp: TopicPartition, offset: Offset, last_epoch: int | None
) -> NoReturn:
    """Raise the error for an `offset` out of range. If the leader holds it, the leader does not know the epoch."""
    held = _bounds(cluster, leader, tp)
    check_within(OffsetRange(offset, offset), held, kind="kafka")
    if last_epoch is not None:
        check_history(last_epoch, offset, epoch_end(cluster, leader, tp, last_epoch), held, None)
    raise MasterRefused("the broker says that this offset is out of range, but holds it", offset=offset, found=held)


def _bounds(cluster: Cluster, leader: Leader, tp: TopicPartition) -> OffsetRange:
    return bounds_at(cluster, leader, tp, Isolation.READ_UNCOMMITTED)
