"""Compare a replica with its master, claim by claim: a claim is a range of the ledger, or a hole. No Spark.

Three things have to be the same for a range: the master's bytes, the bytes rebuilt from the table's rows, and those
that the ledger's checksum was made of. Two that agree outvote the third. Equal bytes are hashed once; if they differ,
the records that differ are found by bisection. Rows and master are read in order, and neither is kept in memory. If the
master drops records (`sinks.proof.master_bytes`), those that it still has are compared one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinks.proof.master_bytes import Dropping, MasterBytes, side_by_side
from sinks.proof.stored import RowsInOrder
from sinks.proof.verdicts import LISTED, Claim, Compared, Difference, DifferenceKind, Verdict
from sinks.values.continuity import written
from sources.errors import CorruptRecord
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

_NO_RECORD = b"\0"
"""Stands in for a row that gives no record, so that no checksum can match."""


def compare(
    claims: Sequence[Claim], rows: Iterable[pa.RecordBatch], master: MasterBytes | None, log: MasterLog
) -> Iterator[Compared]:
    """The verdict on each of `claims`, which join; `rows` are the replica's that start in them, by offset.

    They have the columns that `log` restores and measures by. `master` is None if it no longer holds the range.
    Raises what `rows` and `master` raise.
    """
    by_claim = RowsInOrder(rows)
    for claim in claims:
        comparison = _Comparison(claim, master, log)
        for batch in by_claim.below(claim.range.end):
            comparison.add(batch)
        yield comparison.finished()


class _Digests:
    """The digests of the rows' bytes and of the master's: one digest, as long as they are the same."""

    def __init__(self) -> None:
        self._rows = self._master = hashlib.sha256()

    def add(self, rows: bytes | memoryview, master: bytes | memoryview | None) -> None:
        """Add bytes of the rows, and those that the master has in their place, None if they are the same."""
        if master is not None and self._master is self._rows:
            self._master = self._rows.copy()
        self._rows.update(rows)
        if self._master is not self._rows:
            self._master.update(rows if master is None else master)

    def verdict(self, checksum: str | None) -> Verdict:
        rows, master = map(written, (self._rows, self._master))
        if rows == master:
            return Verdict.EQUAL if rows == checksum else Verdict.LEDGER_WRONG
        if checksum == master:
            return Verdict.REPLICA_DAMAGED
        return Verdict.REWRITTEN if checksum == rows else Verdict.ALL_DIFFER


@dataclass(frozen=True, slots=True)
class _Records:
    """Rows that follow each other: `raw` are their bytes, and `edges` say where in these each of them begins.

    `offsets` and `edges` have one more item: where the last row ends.
    """

    offsets: Sequence[int]
    edges: Sequence[int]
    raw: memoryview

    def range(self, first: int, stop: int) -> OffsetRange:
        return OffsetRange(Offset(self.offsets[first]), Offset(self.offsets[stop]))

    def bytes(self, first: int, stop: int) -> memoryview:
        return self.raw[self.edges[first] : self.edges[stop]]


class _Comparison:
    """The comparison of one claim, to which rows are added as they are read."""

    def __init__(self, claim: Claim, master: MasterBytes | None, log: MasterLog) -> None:
        self._claim = claim
        self._master = master
        self._log = log
        self._digests = _Digests()
        self._at = claim.range.start  # both sides were compared up to here
        self._last: Offset | None = None
        self._is_open = False  # the row at `_at` is no record, so its end is not known
        self._rows = 0
        self._differences: list[Difference] = []
        self._differing = 0
        self._compacted = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._claim.is_hole:
            for offset in batch.column("offset").to_pylist():
                self._note(offset, DifferenceKind.SURPLUS)
            return
        self._add(batch)

    def finished(self) -> Compared:
        verdict = self._verdict()
        return Compared(
            claim=self._claim,
            verdict=verdict,
            rows=self._rows,
            differences=tuple(self._differences),
            differing=self._differing,
            compacted=self._compacted,
            with_master=self._master is not None,
        )

    def _verdict(self) -> Verdict:
        if self._claim.is_hole:
            return Verdict.REPLICA_DAMAGED if self._rows else Verdict.EQUAL
        self._pass_over(self._claim.range.end)
        verdict = self._digests.verdict(self._claim.checksum)
        if self._master is None and verdict is not Verdict.EQUAL:
            return Verdict.REPLICA_DAMAGED
        if verdict is Verdict.LEDGER_WRONG and self._may_be_dropped:
            return Verdict.REPLICA_DAMAGED  # the master may have dropped the wrong record, so it has no vote
        return verdict

    @property
    def _may_be_dropped(self) -> bool:
        dropping = None if self._master is None else self._master.dropping
        return dropping is not None and dropping.does()

    def _add(self, batch: pa.RecordBatch) -> None:
        """Add rows together if they follow each other, and otherwise bisect them."""
        rebuilt = self._joined(batch)
        if rebuilt is not None:
            self._add_records(batch, rebuilt)
        elif batch.num_rows == 1:
            self._add_row(batch)
        else:
            middle = batch.num_rows // 2
            self._add(batch.slice(0, middle))
            self._add(batch.slice(middle))

    def _joined(self, batch: pa.RecordBatch) -> bytes | None:
        """Join the bytes of rows that follow each other as they should; None if they do not."""
        edges = None if self._is_open else self._edges(batch)
        return None if edges is None or edges[-1] > self._claim.range.end else self._restored(batch)

    def _edges(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        """Where each record begins, and where the last one ends; None if they do not join, from `_at` on.

        Offsets without a record belong to the record behind them.
        """
        offsets = batch.column("offset").to_numpy()
        if self._log.traits.has_free_offsets:
            is_rising = offsets[0] >= self._at and (offsets[:-1] < offsets[1:]).all()
            return np.concatenate(([self._at], offsets + 1)) if is_rising else None
        if batch.column("size").null_count:
            return None
        ends = offsets + batch.column("size").to_numpy()
        joins = offsets[0] == self._at and (ends[:-1] == offsets[1:]).all()
        return np.concatenate((offsets, ends[-1:])) if joins else None

    def _restored(self, batch: pa.RecordBatch) -> bytes | None:
        try:
            return self._log.restore(batch)
        except CorruptRecord:
            return None

    def _add_records(self, batch: pa.RecordBatch, rebuilt: bytes) -> None:
        offsets = self._edges(batch)
        if offsets is None:
            raise ValueError("rows that do not follow each other")
        whole = OffsetRange(self._at, Offset(int(offsets[-1])))
        if self._master is None or self._passes(self._master, whole, rebuilt):
            self._digests.add(rebuilt, None)
        else:
            edges = np.cumsum(self._log.lengths(batch))
            records = _Records(offsets.tolist(), [0, *edges.tolist()], memoryview(rebuilt))
            if self._master.dropping is not None and self._master.dropping.does():
                self._add_left(self._master.dropping, records, batch.num_rows)
            else:
                self._add_differing(self._master, records, 0, batch.num_rows)
        self._last, self._at = batch.column("offset")[-1].as_py(), whole.end

    def _passes(self, master: MasterBytes, whole: OffsetRange, rebuilt: bytes) -> bool:
        """Whether the master has the same bytes. False if it is known to drop records: then each is compared later, and
        the range is fetched only once."""
        is_dropping = master.dropping is not None and master.dropping.is_known
        return not is_dropping and master.passes(whole, memoryview(rebuilt))

    def _add_left(self, dropping: Dropping, records: _Records, count: int) -> None:
        """Add `count` records, of which the master may have dropped some: a record that it has dropped says nothing."""
        ours = ((Offset(records.offsets[at + 1] - 1), bytes(records.bytes(at, at + 1))) for at in range(count))
        for offset, mine, theirs in side_by_side(ours, dropping.records(records.range(0, count))):
            self._digests.add(mine or b"", None if mine == theirs else theirs)
            if theirs is None:
                self._compacted += 1
            elif mine != theirs:
                self._note(
                    offset, DifferenceKind.MISSING if mine is None else DifferenceKind.CHANGED, Offset(offset + 1)
                )

    def _add_differing(self, master: MasterBytes, records: _Records, first: int, stop: int) -> None:
        """Add the records from `first` up to `stop`, of which at least one differs from the master's."""
        if stop - first == 1:
            wanted = records.range(first, stop)
            self._digests.add(records.bytes(first, stop), b"".join(map(bytes, master.parts(wanted))))
            self._note(wanted.start, DifferenceKind.CHANGED, wanted.end)
            return
        middle = (first + stop) // 2
        for begin, end in ((first, middle), (middle, stop)):
            raw = records.bytes(begin, end)
            if master.passes(records.range(begin, end), raw):
                self._digests.add(raw, None)
            else:
                self._add_differing(master, records, begin, end)

    def _add_row(self, row: pa.RecordBatch) -> None:
        """Add a row that does not follow the one before it, or is no record."""
        offset = row.column("offset")[0].as_py()
        if offset < self._at or offset == self._last:
            self._note(offset, DifferenceKind.TWICE if offset == self._last else DifferenceKind.SURPLUS)
            self._digests.add(self._restored(row) or _NO_RECORD, b"")
            return
        self._pass_over(offset)
        rebuilt = self._joined(row)
        if rebuilt is not None:
            self._add_records(row, rebuilt)
            return
        self._note(offset, DifferenceKind.CHANGED)
        self._digests.add(_NO_RECORD, b"")
        self._last, self._is_open = offset, True

    def _pass_over(self, offset: Offset) -> None:
        """Go on at `offset`. The offsets before it have no row, or one that is no record."""
        if offset > self._at:
            lacking = OffsetRange(self._at, offset)
            is_lacked = self._take(lacking)
            if is_lacked and not self._is_open:
                self._note(lacking.start, DifferenceKind.MISSING, lacking.end)
            self._at = offset
        self._is_open = False

    def _take(self, lacking: OffsetRange) -> bool:
        """Add bytes that only the master has. Returns whether a record is missing: ids may be free, bytes never are."""
        found = False
        for part in () if self._master is None else self._master.parts(lacking):
            self._digests.add(b"", part)
            found = found or len(part) > 0
        return found or self._master is None or self._log.log_id.counts_bytes

    def _note(self, offset: Offset, kind: DifferenceKind, end: Offset | None = None) -> None:
        """Note a difference of the record at `offset`, which ends at `end`, if that is known."""
        self._differing += 1
        if len(self._differences) < LISTED:
            entry_id = None if end is None or self._log.log_id.counts_bytes else end - 1
            self._differences.append(Difference(offset, kind, entry_id))
