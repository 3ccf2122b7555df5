"""The records of one log as its replica holds them: rebuilt bytes, compared and counted. Driver only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.proof.stored import Part, parts, read
from sinks.tables import log_table
from sinks.values.continuity import Link, written
from sinks.values.ledger_row import REPAIR, LedgerRow
from sinks.warehouse import absolute
from sources.errors import LogError, ReplicaError, StorageUnreachable
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

_AT_ONCE_BYTES = 64 * 1024 * 1024  # of the master's log: rows of it are sorted in memory where OPTIMIZE mixed them


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
