"""The task that joins rows of the ledger: reads their bytes back out of the table, and proves each of them. No Spark.

A row is joined only if the records in its range give the bytes that its checksum was made of. The checksum of the
joined row is made of the same bytes, as they pass. A row that gives other bytes is left as it is, and is described as
`logtwin verify` would without the master; so is one whose file cannot be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sinks.proof.comparison import compare
from sinks.proof.stored import Part, read
from sinks.proof.verdicts import Claim, Compared, Verdict
from sinks.values.continuity import written
from sinks.values.ledger_row import JOINED, LedgerRow
from sources.errors import LogError, ReplicaError, StorageUnreachable, naming
from sources.master import MasterLog
from sources.offsets import OffsetRange

Rows = Sequence[LedgerRow]


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows of one log, in its history `epoch`, each of which may become one row, and the files that may hold
    their records."""

    log: MasterLog
    epoch: int
    groups: Sequence[Rows]
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Proven:
    """The result for a group: rows `joined`, each in place of those in its range, and rows that are `doubtful`."""

    joined: tuple[LedgerRow, ...] = ()
    doubtful: tuple[Compared, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerJoiner:
    """The picklable task function. `folder` is the log table's."""

    folder: str

    def __call__(self, given: Groups) -> list[Proven]:
        """Return what became of each group. Raises StorageUnreachable."""
        with naming(given.log.log_id):
            return [self.proven(given, rows) for rows in given.groups]

    def proven(self, of: Groups, rows: Rows) -> Proven:
        """Join one group as far as its rows are proven. Raises StorageUnreachable."""
        try:
            return self._joined(of, rows)
        except StorageUnreachable:  # says nothing of the bytes
            raise
        except (ReplicaError, LogError):
            if len(rows) == 1:
                return Proven(doubtful=(self._described(of, rows[0]),))
        middle = len(rows) // 2
        halves = [self.proven(of, half) for half in (rows[:middle], rows[middle:])]
        return Proven(*(sum((getattr(half, name) for half in halves), ()) for name in ("joined", "doubtful")))

    def _joined(self, of: Groups, rows: Rows) -> Proven:
        run = _Run()
        found: list[LedgerRow] = []
        doubtful: list[Compared] = []
        for row, raw in zip(rows, self._bytes(of, rows), strict=True):
            if run.takes(row, raw):
                continue
            found += run.ended()
            run = _Run()
            doubtful.append(self._described(of, row))
        return Proven((*found, *run.ended()), tuple(doubtful))

    def _bytes(self, of: Groups, rows: Rows) -> Iterator[list[memoryview]]:
        """The bytes of the records in the range of each row, in pieces. They are made of many rows at once."""
        ends = np.array([row.end for row in rows])
        at, held = 0, list[memoryview]()
        for batch in self._read(of, OffsetRange(rows[0].start, rows[-1].end)):
            raw, first = memoryview(of.log.restore(batch)), 0
            edges = [0, *np.cumsum(of.log.lengths(batch)).tolist()]
            for stop in np.searchsorted(batch.column("offset").to_numpy(), ends[at:]).tolist():
                held.append(raw[edges[first] : edges[stop]])
                if stop == batch.num_rows:  # it may go on in the next one
                    break
                yield held
                at, first, held = at + 1, stop, []
        yield held
        yield from ([] for _ in rows[at + 1 :])

    def _described(self, of: Groups, row: LedgerRow) -> Compared:
        claim = Claim(row.range, row.checksum, row.records, row.bytes)
        try:
            (found,) = compare([claim], self._read(of, row.range), None, of.log)
        except StorageUnreachable:
            raise
        except ReplicaError as error:
            return Compared(claim=claim, verdict=Verdict.UNREADABLE, with_master=False, error=str(error))
        return found

    def _read(self, of: Groups, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        traits = of.log.traits
        columns = tuple(dict.fromkeys(("offset", *traits.restored_from, *traits.measured_by)))
        return read(self.folder, of.parts, of.log.log_id, wanted, columns)


@dataclass(slots=True)
class _Run:
    """Rows that follow each other, each of which is proven."""

    _rows: list[LedgerRow] = field(default_factory=list)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def takes(self, row: LedgerRow, raw: Sequence[memoryview]) -> bool:
        """Whether `raw` is what the checksum of `row` was made of; then it is one of the run."""
        digest = hashlib.sha256()
        for part in raw:
            digest.update(part)
        if written(digest) != row.checksum:
            return False
        for part in raw:
            self._digest.update(part)
        self._rows.append(row)
        return True

    def ended(self) -> list[LedgerRow]:
        """The row that takes the place of all; none for a single one."""
        return [joined_row(self._rows, written(self._digest))] if len(self._rows) > 1 else []


def joined_row(rows: Rows, checksum: str) -> LedgerRow:
    """One row in place of `rows`, which follow each other and are proven. `checksum` is of all their bytes."""
    first_us = (row.first_store_timestamp for row in rows if row.first_store_timestamp is not None)
    last_us = (row.last_store_timestamp for row in rows if row.last_store_timestamp is not None)
    return LedgerRow(
        start=rows[0].start,
        end=rows[-1].end,
        records=sum(row.records for row in rows),
        bytes=sum(row.bytes for row in rows),
        checksum=checksum,
        first_store_timestamp=min(first_us, default=None),
        last_store_timestamp=max(last_us, default=None),
        committed_at=max(row.committed_at for row in rows),
        origin=JOINED,
    )
