"""Read the replica back by offset from its Parquet files: its rows, and as `StoredLog` the master's bytes, rebuilt.

The driver asks Kernel which files a version of the table has, and what their statistics allow (`parts`). Driver and
tasks read them (`read`), which takes only pyarrow. A part may hold rows of other logs, and none of the wanted ones:
OPTIMIZE merges files of several logs, and sorts them by other columns than the offset. So rows are filtered, and row
groups whose ranges overlap are sorted together. Files that the replica wrote have row groups that follow each other:
one at a time is in memory. If row groups interleave, all wanted rows that they share are in memory, so callers keep
`wanted` small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.delta.data_file import bounds
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import group_bounds, open_parquet
from sinks.delta.kernel import KernelTable, Overlap, Snapshot
from sinks.storage.errors import reported_as
from sinks.tables import EPOCH, LOG_ID, log_table
from sinks.values.continuity import Link, written
from sinks.values.ledger_row import REPAIR, LedgerRow
from sinks.warehouse import absolute
from sources.errors import LogError, ReplicaError, StorageUnreachable
from sources.master import MasterLog
from sources.offsets import END, LogId, Offset, OffsetRange

_OFFSET = "offset"
_ANYWHERE = OffsetRange(Offset(0), END)
_ROWS_AT_ONCE = 16_384
_AT_ONCE_BYTES = 64 * 1024 * 1024  # of the master's log: rows of it are sorted in memory where OPTIMIZE mixed them


@dataclass(frozen=True, slots=True)
class Part:
    """A data file of the table, and the offsets that its statistics allow, of all logs."""

    path: str  # in the table's folder
    range: OffsetRange
    records: int  # of all its logs; 0 if the Delta log does not say
    size_bytes: int


def parts(table: KernelTable, on: Snapshot, log_id: LogId, wanted: OffsetRange) -> list[Part]:
    """The files that may hold records of `log_id` that start in `wanted`, by their least offset. Driver only."""
    files = table.files(on, {LOG_ID.name: str(log_id)}, Overlap(wanted, _OFFSET))
    return sorted(map(_part, files), key=lambda part: (part.range, part.path))


def _part(file: StoredFile) -> Part:
    statistics = file.statistics()
    least, greatest = bounds(statistics, _OFFSET)
    known = least is not None and greatest is not None
    allowed = OffsetRange(Offset(least), Offset(greatest + 1)) if known else _ANYWHERE
    return Part(file.path, allowed, statistics.get("numRecords", 0), file.size_bytes)


def read(
    folder: str, parts: Sequence[Part], log_id: LogId, wanted: OffsetRange, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of `log_id` that start in `wanted`, in the order of their offsets.

    `folder` is the table's, absolute or a URI; `columns` are some of the master's, with the offset, by default all. A
    duplicate record is returned twice.
    Raises ReplicaError naming the file that cannot be read.
    """
    table = log_table(log_id).schema
    names = columns or [name for name in table.names if name not in (LOG_ID.name, EPOCH.name)]
    schema = pa.schema([table.field(name) for name in names]).remove_metadata()
    in_reach = [part for part in parts if part.range.overlaps(wanted)]
    for overlapping in _clusters(in_reach):
        with ExitStack() as opened:
            files = [opened.enter_context(_File(folder, part, log_id)) for part in overlapping]
            groups = [group for file in files for group in file.groups(wanted)]
            for interleaved in _clusters(groups):
                yield from _in_order(interleaved, wanted, schema)


class _Ranged(Protocol):
    @property
    def range(self) -> OffsetRange: ...


_R = TypeVar("_R", bound=_Ranged)


def _clusters(pieces: Iterable[_R]) -> Iterator[list[_R]]:
    """Group pieces whose ranges overlap, directly or through others. Groups are in the order of their offsets."""
    cluster: list[_R] = []
    end = 0
    for piece in sorted(pieces, key=lambda piece: piece.range):
        if cluster and piece.range.start >= end:
            yield cluster
            cluster = []
        cluster.append(piece)
        end = max(end, piece.range.end)
    if cluster:
        yield cluster


class _File:
    """A data file, open for reading."""

    def __init__(self, folder: str, part: Part, log_id: LogId) -> None:
        self._folder = folder
        self._part = part
        self._log_id = log_id

    def __enter__(self) -> _File:
        with self._named():
            self._parquet = open_parquet(self._folder, self._part.path)
        return self

    def __exit__(self, *_: object) -> None:
        self._parquet.close()

    def groups(self, wanted: OffsetRange) -> list[_RowGroup]:
        """The row groups that may hold wanted records."""
        with self._named():
            both = zip(*(group_bounds(self._parquet, one) for one in (LOG_ID.name, _OFFSET)), strict=True)
            found = [self._group(number, ids, offsets) for number, (ids, offsets) in enumerate(both)]
        return [group for group in found if group.range.overlaps(wanted)]

    def rows(self, group: _RowGroup, wanted: OffsetRange, schema: pa.Schema) -> pa.Table:
        """The wanted records of one row group, in the file's order."""
        names = schema.names if group.is_pure else [LOG_ID.name, *schema.names]
        with self._named():
            batches = self._parquet.iter_batches(_ROWS_AT_ONCE, row_groups=[group.number], columns=names)
            found = [self._filtered(batch, group, wanted).select(schema.names).cast(schema) for batch in batches]
            return pa.Table.from_batches(found, schema)

    def _group(self, number: int, ids: tuple[Any, Any] | None, offsets: tuple[Any, Any] | None) -> _RowGroup:
        within = self._part.range if offsets is None else OffsetRange(offsets[0], Offset(offsets[1] + 1))
        return _RowGroup(self, number, within, is_pure=ids == (str(self._log_id),) * 2)

    def _filtered(self, batch: pa.RecordBatch, group: _RowGroup, wanted: OffsetRange) -> pa.RecordBatch:
        if not group.is_pure:
            batch = batch.filter(pc.equal(batch.column(LOG_ID.name), str(self._log_id)))
        offsets = batch.column(_OFFSET)
        if group.range.start < wanted.start or group.range.end > wanted.end or offsets.null_count:
            batch = batch.filter(pc.and_(pc.greater_equal(offsets, wanted.start), pc.less(offsets, wanted.end)))
        return batch

    def _named(self) -> AbstractContextManager[None]:
        """Turns errors of pyarrow into one that names the file."""
        return reported_as(
            f"the data file {self._folder.rstrip('/')}/{self._part.path} cannot be read",
            log=self._log_id,
            offset=self._part.range.start,
            expected=f"{self._part.records} rows with offsets in {self._part.range}",
            hint="Restore the file from a copy, or take what it held from the master again: logtwin verify says "
            "which ranges that are.",
        )


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group: the offsets its statistics allow, and whether all of its rows are the log's."""

    file: _File
    number: int
    range: OffsetRange
    is_pure: bool


def _in_order(groups: Sequence[_RowGroup], wanted: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows = pa.concat_tables(group.file.rows(group, wanted, schema) for group in groups)
    offsets = rows.column(_OFFSET).to_numpy()
    if (offsets[:-1] > offsets[1:]).any():
        rows = rows.take(np.argsort(offsets, kind="stable"))
    yield from (batch for batch in rows.to_batches() if batch.num_rows)


class RowsInOrder:
    """Batches in the order of their offsets, cut where ranges end."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None

    def below(self, end: Offset) -> Iterator[pa.RecordBatch]:
        """Take the rows that start before `end` and were not taken yet."""
        while (batch := self._next()) is not None:
            count = int(np.searchsorted(batch.column("offset").to_numpy(), end))
            if count < batch.num_rows:
                self._rest = batch.slice(count)
            if count:
                yield batch.slice(0, count)
            if count < batch.num_rows:
                return

    def _next(self) -> pa.RecordBatch | None:
        batch, self._rest = self._rest, None
        return next(self._batches, None) if batch is None else batch


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record: its range, its bytes at the master, and when the master stored it (µs since 1970; None for a blank)."""

    range: OffsetRange
    raw: bytes
    stored_us: int | None


class StoredLog:
    """The log of `master` in the table log of a warehouse, at the newest version of each call."""

    def __init__(self, spark: SparkSession, warehouse: str, master: MasterLog) -> None:
        spec = log_table(master.log_id)
        self._table = KernelTable(spark, spec.path(absolute(warehouse)))
        self._master = master
        self._stored_at = spec.stored_at
        # In a log with free offsets a record takes only its own offset.
        self._placed_by = ("offset",) if master.traits.has_free_offsets else ("offset", "size")

    def records(self, wanted: OffsetRange) -> Iterator[StoredRecord]:
        """The records that start in `wanted`, in order. Raises ReplicaError, CorruptRecord (of a damaged row)."""
        master = self._master
        columns = dict.fromkeys(
            (*self._placed_by, self._stored_at, *master.traits.restored_from, *master.traits.measured_by)
        )
        files = self._parts(wanted)
        for piece in wanted.in_pieces(_AT_ONCE_BYTES):
            for batch in self._read(files, piece, tuple(columns)):
                yield from self._records(batch, master.restore(batch), master.lengths(batch).tolist())

    def count(self, wanted: OffsetRange) -> tuple[int, int]:
        """The number of records that start in `wanted`, and of their bytes at the master. Raises ReplicaError."""
        columns = tuple(dict.fromkeys(("offset", *self._master.traits.measured_by)))
        lengths = [self._master.lengths(batch) for batch in self._read(self._parts(wanted), wanted, columns)]
        return sum(map(len, lengths)), sum(int(part.sum()) for part in lengths)

    def is_whole(self, row: LedgerRow) -> bool:
        """Whether the records in the range of `row` give the bytes that were replicated. Raises StorageUnreachable."""
        digest = hashlib.sha256()
        try:
            for record in self.records(row.range):
                digest.update(record.raw)
        except StorageUnreachable:
            raise
        except (ReplicaError, LogError):
            return False
        return written(digest) == row.checksum

    def rest(self, row: LedgerRow, end: Offset) -> tuple[LedgerRow, Link] | None:
        """`row` without the records that reach beyond `end`, and its last record; None if nothing is left.

        Raises as `records` does.
        """
        digest, stored, size_bytes, last = hashlib.sha256(), [], 0, None
        for record in self.records(OffsetRange(row.start, end)):
            if record.range.end > end:
                break
            digest.update(record.raw)
            stored.append(record.stored_us)
            size_bytes += len(record.raw)
            last = record
        if last is None:
            return None
        times = [at_us for at_us in stored if at_us is not None]
        left = replace(
            row,
            end=last.range.end,
            records=len(stored),
            bytes=size_bytes,
            checksum=written(digest),
            first_store_timestamp=min(times, default=None),
            last_store_timestamp=max(times, default=None),
            origin=REPAIR,
        )
        return left, Link.of(last.range, last.raw)

    def _parts(self, wanted: OffsetRange) -> list[Part]:
        log_id = self._master.log_id
        return parts(self._table, self._table.existing(log_id), log_id, wanted)

    def _read(self, files: Sequence[Part], wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return read(self._table.path, files, self._master.log_id, wanted, columns)

    def _records(self, batch: pa.RecordBatch, raw: bytes, lengths: Sequence[int]) -> Iterator[StoredRecord]:
        at = 0
        offsets, *sizes = (batch.column(name).to_pylist() for name in self._placed_by)
        stored = batch.column(self._stored_at).cast(pa.int64()).to_pylist()
        for offset, size, stored_us, length in zip(
            offsets, *(sizes or [[1] * len(offsets)]), stored, lengths, strict=True
        ):
            yield StoredRecord(OffsetRange(offset, Offset(offset + size)), raw[at : at + length], stored_us)
            at += length
