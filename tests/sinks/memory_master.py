"""A master log in memory: records of given sizes, one after the other. And masters that break the contract."""

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.bounds import MasterRetention, check_within
from sources.errors import ChecksumMismatch, CorruptRecord, LogtwinError, MissingSegment
from sources.master import Chunk, Committed, Damage, MasterLog, MasterView, Session, SessionState, Traits
from sources.offsets import LogId, Offset, OffsetRange
from sources.records import BLANK, MESSAGE, RECORD_SCHEMA, KeyedState
from sources.sole_log import SoleLog

BROKER_A = LogId("rocketmq", "broker-a")
FIRST_STORED = datetime(2024, 2, 29, 23, 59, 30, tzinfo=UTC)
SCHEMA = RECORD_SCHEMA.remove_metadata()


@dataclass(frozen=True, slots=True)
class MemoryMaster(SoleLog):
    """Records of `sizes` bytes from `start` on; everything about a record follows from its offset and its number."""

    sizes: tuple[int, ...]
    start: int = 0
    log_id: LogId = BROKER_A
    topics: tuple[str, ...] = ("orders", "payments", "%RETRY%audit")
    chunk_records: int = 3
    split_bytes: int = 256 * 1024 * 1024
    cuts_at_records: bool = False
    cuts_batches: bool = False
    retention: MasterRetention | None = None
    address: str = "memory:10912"
    role: str = "slave"
    proves_all: bool = False
    overrules: bool = False
    has_a_rule: bool = False  # of its own, for what a replica has in common with it
    keyed_state: KeyedState | None = None

    @property
    def traits(self) -> Traits:
        return Traits(
            restored_from=("offset", "size"),
            measured_by=("size",),
            cuts_at_records=self.cuts_at_records,
            cuts_batches=self.cuts_batches,
            proves_all=self.proves_all,
            overrules=self.overrules,
            keyed_state=self.keyed_state,
        )

    def check(self, *, is_replica: bool = True) -> None:
        """Nothing stands against it."""

    def records(self) -> list[dict[str, Any]]:
        """All rows, in RECORD_SCHEMA's columns."""
        rows, offset = [], self.start
        for number, size in enumerate(self.sizes):
            blank = _complete(offset=offset, size=size, kind=BLANK, magic=-875286124)
            rows.append(blank if number % 11 == 10 else self._message(number, offset, size))
            offset += size
        return rows

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        return OffsetRange(Offset(self.start), Offset(self.start + sum(self.sizes)))

    def view(self) -> MasterView:
        return MasterView(role="ASYNC_MASTER", bounds=self.bounds(), retention=self.retention)

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        starts = [row["offset"] for row in self.records() if offset <= row["offset"] < maximum]
        return Offset(min(starts, default=maximum)) if self.cuts_at_records else offset

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        return wanted.in_pieces(100)

    def size_bytes(self, wanted: OffsetRange) -> int:
        return wanted.size

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        rows = [row for row in self.records() if row["offset"] in owned]
        if boundary and (not rows or rows[0]["offset"] != owned.start):
            raise CorruptRecord("no record starts here", offset=owned.start)
        for at in range(0, len(rows), self.chunk_records):
            yield chunk_of(rows[at : at + self.chunk_records], self._bytes)

    def restore(self, records: pa.RecordBatch) -> bytes:
        return b"".join(raw_bytes(row) for row in records.to_pylist())

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        lengths: npt.NDArray[np.int64] = records.column("size").to_numpy()
        return lengths

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        return Offset(min(start + max_bytes, maximum))

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset | None:
        if not self.has_a_rule:
            return None
        common = Offset(0)
        for covered, raw in records:
            if covered.end > self.bounds().end or b"".join(self.raw(covered, committed=None)) != raw:
                break
            common = covered.end
        return common

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        whole = b"".join(map(self._bytes, self.records()))
        yield memoryview(whole)[wanted.start - self.start : wanted.end - self.start]

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        return RecordingSession()

    def _bytes(self, row: dict[str, Any]) -> bytes:
        return raw_bytes(row)

    def _message(self, number: int, offset: int, size: int) -> dict[str, Any]:
        stored = FIRST_STORED + timedelta(milliseconds=250 * number)
        return _complete(
            offset=offset,
            size=size,
            kind=MESSAGE,
            topic=self.topics[number * len(self.topics) // len(self.sizes)],
            queue_id=number % 4,
            queue_offset=number // 4,
            tags="TagA" if number % 2 else None,
            keys=[f"key-{number}", "ключ"] if number % 3 else None,
            unique_key=f"{number:032X}",
            store_timestamp=stored,
            born_timestamp=stored - timedelta(microseconds=1500),
            body=bytes([number % 256]) * (number % 7),
            properties={"TAGS": "TagA", "empty": ""} if number % 2 else {},
            body_crc=zlib.crc32(bytes([number % 256]) * (number % 7)) & 0x7FFFFFFF,
        )


def _complete(**values: Any) -> dict[str, Any]:
    return {name: values.get(name) for name in SCHEMA.names}


def raw_bytes(row: dict[str, Any]) -> bytes:
    """The master's bytes of one record: its offset, over and over."""
    size: int = row["size"]
    return (b"%d|" % row["offset"] * size)[:size]


def chunk_of(rows: list[dict[str, Any]], raw: Callable[[dict[str, Any]], bytes] = raw_bytes) -> Chunk:
    records = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    covered = OffsetRange(rows[0]["offset"], rows[-1]["offset"] + rows[-1]["size"])
    return Chunk(covered, records, memoryview(b"".join(raw(row) for row in rows)))


@dataclass(frozen=True, slots=True)
class Rewriting(MemoryMaster):
    """The same records in the same places; those from `since` on are made of other bytes."""

    since: int = 0

    def _bytes(self, row: dict[str, Any]) -> bytes:
        return raw_bytes(row).replace(b"|", b"/") if row["offset"] >= self.since else raw_bytes(row)


@dataclass(frozen=True, slots=True)
class Overtaken(MemoryMaster):
    """Its retention has deleted what lies below `minimum`."""

    minimum: int = 0

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        return MemoryMaster.bounds(self).starting_at(Offset(self.minimum))

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        check_within(owned, self.bounds(), log=self.log_id)
        yield from MemoryMaster.read(self, owned, committed=committed, boundary=boundary)

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        check_within(wanted, self.bounds(), log=self.log_id)
        yield from MemoryMaster.raw(self, wanted, committed=committed)


@dataclass(frozen=True, slots=True)
class Damaged(MemoryMaster):
    """Opened with ``on_loss = "record"``: the records at `bad` are no sound ones, those at `gone` have no bytes at all.

    What is bad comes in two pieces, as large damage does.
    """

    bad: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    error: LogtwinError = field(default_factory=lambda: ChecksumMismatch("another body", expected="1", found="2"))

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        for row in self.records():
            if row["offset"] in owned:
                yield from self._damage(row) if row["offset"] in (*self.bad, *self.gone) else [chunk_of([row])]

    def _damage(self, row: dict[str, Any]) -> Iterator[Damage]:
        start, size = row["offset"], row["size"]
        if start in self.gone:
            yield Damage(OffsetRange(start, start + size), None, MissingSegment("a file is missing", offset=start))
            return
        for piece in OffsetRange(start, start + size).in_pieces(-(-size // 2)):
            raw = raw_bytes(row)[piece.start - start : piece.end - start]
            yield Damage(piece, memoryview(raw), self.error)


@dataclass(frozen=True, slots=True)
class Holed(MemoryMaster):
    """Leaves out the record at `hole`, and what is around it joins in the numbers it gives."""

    hole: int = -1

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        for row in self.records():
            if row["offset"] in owned and row["offset"] != self.hole:
                yield chunk_of([row])


@dataclass(frozen=True, slots=True)
class HoledInside(MemoryMaster):
    """Leaves out a row of a chunk and still claims to cover it."""

    hole: int = -1

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        whole = chunk_of([row for row in self.records() if row["offset"] in owned])
        rows = [row for row in whole.records.to_pylist() if row["offset"] != self.hole]
        yield replace(whole, records=pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


@dataclass(frozen=True, slots=True)
class Doubling(MemoryMaster):
    """Hands every split the first record of the next one as well."""

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        rows = self.records()
        mine = [at for at, row in enumerate(rows) if row["offset"] in owned]
        yield chunk_of(rows[mine[0] : mine[-1] + 2])


@dataclass(frozen=True, slots=True)
class Short(MemoryMaster):
    """Stops before the record at `stop`, as a master does whose end was misread."""

    stop: int = 0

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        rows = [row for row in self.records() if row["offset"] in owned and row["offset"] < self.stop]
        if rows:
            yield chunk_of(rows)


@dataclass(frozen=True, slots=True)
class Failing(MemoryMaster):
    """Raises `error` in place of the record at `at`; without that, behind the first record of what is asked for."""

    at: int | None = None
    error: LogtwinError = field(default_factory=lambda: CorruptRecord("the body's checksum is wrong"))

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        for row in self.records():
            if row["offset"] in owned:
                if row["offset"] == self.at:
                    raise self.error
                yield chunk_of([row])
                if self.at is None:
                    raise self.error


class RecordingSession:
    """Remembers what was acknowledged, call by call, and for how many batches it made way."""

    failure: LogtwinError | None = None

    def __init__(self) -> None:
        self.calls: list[Mapping[LogId, Committed]] = []
        self.readings = 0
        self.is_closed = False

    @property
    def state(self) -> SessionState:
        connected_since = None if self.is_closed else FIRST_STORED
        told = Offset(sum(self.acknowledged.values())) if self.calls else None
        return SessionState(told, connected_since, reconnects=0, last_error=None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.readings += 1
        yield

    def reader_of(self, log: MasterLog) -> MasterLog:
        return log

    @property
    def told(self) -> list[Committed]:
        return [committed for call in self.calls for committed in call.values()]

    @property
    def promises(self) -> list[Offset]:
        return [committed.offset for committed in self.told]

    @property
    def acknowledged(self) -> Mapping[LogId, Offset]:
        return {log_id: committed.offset for call in self.calls for log_id, committed in call.items()}

    def acknowledge(self, positions: Mapping[LogId, Committed]) -> None:
        self.calls.append(positions)

    def close(self) -> None:
        self.is_closed = True
