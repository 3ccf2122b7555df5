"""A topic's partition in memory: records at given offsets, holes between them. And some that break the contract."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.bounds import check_within
from sources.errors import LogtwinError, Recreated, Rewritten
from sources.kafka.format.columns import CREATE_TIME, LOG_APPEND_TIME, canonical, canonical_lengths, located
from sources.kafka.log import TRAITS
from sources.master import NOTHING_KNOWN, Chunk, Damage, Holding, Known, LogQuery, MasterView, Session
from sources.metadata import FetchedMetadata
from sources.offsets import LogId, Offset, OffsetRange, partition_log, topic_and_number
from sources.records import KAFKA_SCHEMA
from sources.shards import Shard
from sources.sole_log import PlainLog
from tests.sinks.memory_master import RecordingSession

ORDERS = LogId("kafka", "prod/orders")
TOPIC_ID = "11111111-2222-3333-4444-555555555555"
FIRST_SENT = datetime(2024, 2, 29, 23, 59, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MemoryPartition(PlainLog):
    """Records at `offsets`, of a log that ends at `end`; everything about one follows from its offset.

    A leader stays for ten offsets, so the epoch of an offset is a tenth of the one before it. `topic_id` is the id of
    the topic that there is. `asked` are the ranges that were read, each with the epoch that went along.
    """

    number: int
    offsets: tuple[int, ...]
    end: int
    topic: LogId = ORDERS
    start: int = 0
    chunk_offsets: int = 4
    split_offsets: int = 100
    topic_id: str = TOPIC_ID
    record_bytes: int = 100
    known: Known = NOTHING_KNOWN
    patience_s: float | None = None
    asked: list[tuple[OffsetRange, int | None]] = field(default_factory=list, compare=False)

    traits = TRAITS
    address = "memory:9092"

    @classmethod
    def like(cls, other: MemoryPartition, **more: Any) -> Self:
        return cls(**{one.name: getattr(other, one.name) for one in fields(MemoryPartition)} | more)

    @property
    def log_id(self) -> LogId:
        return partition_log(self.topic, self.number)

    def rows(self, owned: OffsetRange) -> list[dict[str, Any]]:
        return [self._row(offset) for offset in self.offsets if offset in owned]

    def chunk(self, covered: OffsetRange) -> Chunk:
        batch = pa.RecordBatch.from_pylist(self.rows(covered), schema=KAFKA_SCHEMA.remove_metadata())
        records = located(batch, [(self.topic.name.split("/")[1], self.number)], [len(batch)])
        return Chunk(covered, records, canonical(records), epoch_before(covered.end))  # type: ignore[arg-type] # bytes, so that a script can be pickled

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        after = self.known.mark if self.known.offset == owned.start else None
        self.asked.append((owned, after))
        self.check_identity()
        check_within(owned, self.bounds())
        if after not in (None, epoch_before(owned.start)):
            raise Rewritten("another history", offset=owned.start, expected=after, found=epoch_before(owned.start))
        for covered in owned.in_pieces(self.chunk_offsets):
            yield self.chunk(covered)

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        yield self.chunk(wanted).raw

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        return OffsetRange(Offset(self.start), Offset(self.end))

    def check(self, *, is_replica: bool = True) -> None:
        """Nothing stands against it."""

    def size_bytes(self, wanted: OffsetRange) -> int:
        return wanted.size * self.record_bytes

    @property
    def split_bytes(self) -> int:
        return self.split_offsets * self.record_bytes

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        return min(offset, maximum)

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        return min(maximum, Offset(start + max(1, max_bytes // self.record_bytes)))

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        return wanted.in_pieces(self.split_offsets)

    def identity(self) -> str:
        return self.topic_id

    def continuing(self, known: Known) -> Self:
        return replace(self, known=known)

    def hurried(self, patience_s: float) -> Self:
        return replace(self, patience_s=patience_s)

    def restore(self, records: pa.RecordBatch) -> bytes:
        return canonical(records)

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return canonical_lengths(records)

    def check_identity(self) -> None:
        if self.known.identity not in (None, self.topic_id):
            raise Recreated("another topic", log=self.log_id, expected=self.known.identity, found=self.topic_id)

    def _row(self, offset: int) -> dict[str, Any]:
        return {
            "offset": offset,
            "leader_epoch": offset // 10,
            "timestamp": None if offset % 3 == 2 else FIRST_SENT + timedelta(milliseconds=250 * offset),
            "timestamp_type": LOG_APPEND_TIME if offset % 2 else CREATE_TIME,
            "key": None if offset % 5 == 0 else b"key %d" % (offset % 7),
            "value": None if offset % 4 == 3 else bytes([self.number]) * (offset % 6),
            "headers": [{"key": "trace", "value": b"%d" % offset}, {"key": "trace", "value": None}][: offset % 3],
        }


def epoch_before(offset: int) -> int | None:
    return (offset - 1) // 10 if offset else None


def partitions(*offsets: tuple[int, ...], end: int, topic: LogId = ORDERS) -> dict[int, MemoryPartition]:
    """Those of one topic, all of one length, with records at these offsets."""
    return {number: MemoryPartition(number, at, end, topic) for number, at in enumerate(offsets)}


@dataclass(frozen=True, slots=True)
class FailingPartition(MemoryPartition):
    """Breaks off before the chunk that would hold the record `broken_at`."""

    error: LogtwinError = field(kw_only=True)
    broken_at: int = field(kw_only=True, default=0)

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        for piece in owned.in_pieces(self.chunk_offsets):
            if self.broken_at < piece.end:
                raise self.error
            yield self.chunk(piece)


@dataclass(frozen=True, slots=True)
class ScriptedPartition(MemoryPartition):
    """Answers `chunks`, whatever it is asked for."""

    chunks: tuple[Chunk, ...] = ()

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        yield from self.chunks


@dataclass(frozen=True)
class MemoryTopic:
    """The `sources.master.Master` of `partitions`, all of one topic, as far as they are in `shard`.

    `checked` is whose history was asked for, `parted` are those that have another one.
    """

    partitions: dict[int, MemoryPartition]
    session: RecordingSession = field(default_factory=RecordingSession)
    checked: list[Mapping[LogId, Known]] = field(default_factory=list)
    parted: dict[LogId, LogtwinError] = field(default_factory=dict)
    shard: Shard | None = None

    id = ORDERS
    traits = TRAITS
    address = "memory:9092"
    role = "consumer"

    def check(self, *, is_replica: bool = True) -> None:
        """Nothing stands against it."""

    def counted_for_s(self) -> None:
        """Nobody counts."""

    def is_waited_for(self) -> bool:
        return False

    def poll(self, asked: Mapping[LogId, LogQuery]) -> Mapping[LogId, Holding | LogtwinError]:
        for log_id, one in asked.items():
            self.log(log_id).continuing(Known(one.identity)).check_identity()
        ours = [one for one in self.partitions.values() if self.shard is None or self.shard.has(one.log_id)]
        return {one.log_id: Holding(one.bounds(), one.topic_id) for one in ours}

    def view(self) -> MasterView:
        return MasterView(role=None, bounds=OffsetRange(Offset(0), Offset(0)), retention=None)

    def log(self, log_id: LogId) -> MemoryPartition:
        return self.partitions[topic_and_number(log_id)[1]]

    def check_history(self, known: Mapping[LogId, Known]) -> Mapping[LogId, LogtwinError]:
        self.checked.append(known)
        return self.parted

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        return self.session

    def acknowledged_by_master(self) -> Mapping[LogId, Offset]:
        return self.session.acknowledged

    def metadata(self) -> Iterator[FetchedMetadata]:
        return iter(())
