"""A topic in memory: records at given offsets, holes between them. And partitions that break the contract."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from sources.bounds import check_within
from sources.errors import LogtwinError, Recreated, Rewritten
from sources.kafka.columns import CREATE_TIME, LOG_APPEND_TIME, canonical, located
from sources.master import Chunk, SessionState
from sources.master_topic import KAFKA_SCHEMA, PartitionPosition, TopicSession, partition_log
from sources.offsets import LogId, Offset, OffsetRange

ORDERS = LogId("kafka", "prod/orders")
TOPIC_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")
FIRST_SENT = datetime(2024, 2, 29, 23, 59, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MemoryPartition:
    """Records at `offsets`, of a log that ends at `end`; everything about one follows from its offset.

    A leader stays for ten offsets, so the epoch of an offset is a tenth of the one before it.
    """

    log_id: LogId
    number: int
    offsets: tuple[int, ...]
    end: int
    start: int = 0
    chunk_offsets: int = 4
    asked: list[tuple[OffsetRange, int | None]] = field(default_factory=list, compare=False)

    def rows(self, owned: OffsetRange) -> list[dict[str, Any]]:
        return [self._row(offset) for offset in self.offsets if offset in owned]

    def read(self, owned: OffsetRange, *, after_epoch: int | None = None) -> Iterator[Chunk]:
        self.asked.append((owned, after_epoch))
        check_within(owned, OffsetRange(Offset(self.start), Offset(self.end)))
        if after_epoch not in (None, epoch_before(owned.start)):
            raise Rewritten(
                "another history", offset=owned.start, expected=after_epoch, found=epoch_before(owned.start)
            )
        for covered in owned.in_pieces(self.chunk_offsets):
            yield self.chunk(covered)

    def chunk(self, covered: OffsetRange) -> Chunk:
        batch = pa.RecordBatch.from_pylist(self.rows(covered), schema=KAFKA_SCHEMA.remove_metadata())
        records = located(batch, self.log_id.name.split("/")[1], self.number)
        return Chunk(covered, records, memoryview(canonical(records)), epoch_before(covered.end))

    def _row(self, offset: int) -> dict[str, Any]:
        return {
            "offset": offset,
            "leader_epoch": offset // 10,
            "timestamp": None if offset % 3 == 2 else sent_at(offset),
            "timestamp_type": LOG_APPEND_TIME if offset % 2 else CREATE_TIME,
            "key": None if offset % 5 == 0 else b"key %d" % (offset % 7),
            "value": None if offset % 4 == 3 else bytes([self.number]) * (offset % 6),
            "headers": [{"key": "trace", "value": b"%d" % offset}, {"key": "trace", "value": None}][: offset % 3],
        }


def epoch_before(offset: int) -> int | None:
    return (offset - 1) // 10 if offset else None


def sent_at(offset: int) -> datetime:
    return FIRST_SENT + timedelta(milliseconds=250 * offset)


@dataclass(frozen=True, slots=True)
class MemoryTopic:
    """`partitions` by number; what is asked of it goes to these. Raises Recreated for another topic's id."""

    partitions: Mapping[int, MemoryPartition]
    log_id: LogId = ORDERS

    @classmethod
    def of(cls, *offsets: tuple[int, ...], end: int) -> MemoryTopic:
        """Partitions of one length, with records at these offsets."""
        numbered = enumerate(offsets)
        return cls({number: MemoryPartition(partition_log(ORDERS, number), number, at, end) for number, at in numbered})

    def partition(self, number: int, topic_id: uuid.UUID) -> MemoryPartition:
        self._check(topic_id)
        return self.partitions[number]

    def check_history(self, topic_id: uuid.UUID, positions: Mapping[int, PartitionPosition]) -> None:
        self._check(topic_id)

    def open_session(self) -> TopicSession:
        return RecordingTopicSession()

    def _check(self, topic_id: uuid.UUID) -> None:
        if topic_id != TOPIC_ID:
            raise Recreated("another topic", log=self.log_id, expected=TOPIC_ID, found=topic_id)


def with_partition(topic: MemoryTopic, partition: MemoryPartition) -> MemoryTopic:
    """The same with another one of that number."""
    return replace(topic, partitions={**topic.partitions, partition.number: partition})


@dataclass(frozen=True, slots=True)
class FailingPartition(MemoryPartition):
    """Breaks off behind its first chunk."""

    error: LogtwinError = field(kw_only=True)

    def read(self, owned: OffsetRange, *, after_epoch: int | None = None) -> Iterator[Chunk]:
        yield self.chunk(owned.in_pieces(self.chunk_offsets)[0])
        raise self.error


@dataclass(frozen=True, slots=True)
class ScriptedPartition(MemoryPartition):
    """Answers `chunks`, whatever it is asked for."""

    chunks: tuple[Chunk, ...] = ()

    def read(self, owned: OffsetRange, *, after_epoch: int | None = None) -> Iterator[Chunk]:
        yield from self.chunks


class RecordingTopicSession:
    """Remembers what was acknowledged."""

    failure: LogtwinError | None = None

    def __init__(self) -> None:
        self.promises: list[dict[int, PartitionPosition]] = []
        self.is_closed = False

    @property
    def acknowledged(self) -> dict[int, Offset]:
        return {number: position.offset for promise in self.promises for number, position in promise.items()}

    @property
    def state(self) -> SessionState:
        total = Offset(sum(self.acknowledged.values())) if self.promises else None
        return SessionState(total, None if self.is_closed else FIRST_SENT, reconnects=0, last_error=None)

    def acknowledge(self, positions: Mapping[int, PartitionPosition]) -> None:
        self.promises.append(dict(positions))

    def close(self) -> None:
        self.is_closed = True
