"""Is the replica what the master holds? Claim by claim: a range of the ledger, or a hole. No Spark.

Three things are to be the same for a range: the master's bytes, the bytes rebuilt from the table's rows, and those that
the ledger's checksum was made of. Two that agree outvote the third. What equals is hashed once; where something
differs, the records are looked at one by one. Both streams are read once and in order, and nothing is kept of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from sinks.continuity import written
from sinks.proof.verdicts import LISTED, Claim, Compared, Difference, Kind, Verdict
from sources.errors import CorruptRecord
from sources.offsets import Offset

_NO_RECORD = b"\0"
"""What a row that gives no record counts for, so that no checksum is right with it."""

Restore = Callable[[pa.RecordBatch], bytes]


def compare(
    claims: Sequence[Claim], rows: Iterable[pa.RecordBatch], master: Iterable[memoryview] | None, restore: Restore
) -> Iterator[Compared]:
    """The verdict on each of `claims`, which join; `rows` are the replica's that start in them, by offset.

    `master` gives the master's bytes from the first claim's start on, in pieces, each good until the next is asked
    for; None where it has none any more. Raises what `rows` and `master` raise.
    """
    by_claim = _Rows(rows)
    stream = None if master is None else _Stream(master)
    for claim in claims:
        comparison = _Comparison(claim, stream, restore)
        for batch in by_claim.below(claim.range.end):
            comparison.add(batch)
        yield comparison.finished()


class _Rows:
    """Batches in the order of their offsets, cut where claims end."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None

    def below(self, end: Offset) -> Iterator[pa.RecordBatch]:
        """The rows that start before `end` and were not taken yet."""
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


class _Stream:
    """The master's bytes, taken in order."""

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def parts(self, count: int) -> Iterator[memoryview]:
        """The next `count` bytes, fewer where the stream ends; each part is good until the next is asked for."""
        while count and (len(self._rest) or self._refill()):
            part, self._rest = self._rest[:count], self._rest[count:]
            count -= len(part)
            yield part

    def unless(self, expected: bytes) -> bytes | None:
        """The next bytes, as many as `expected` has; None where they are the same."""
        at, view = 0, memoryview(expected)
        parts = self.parts(len(expected))
        for part in parts:
            if not pa.py_buffer(part).equals(pa.py_buffer(view[at : at + len(part)])):
                return b"".join([view[:at], bytes(part), *map(bytes, parts)])
            at += len(part)
        return None if at == len(expected) else expected[:at]

    def _refill(self) -> bool:
        self._rest = next(self._pieces, memoryview(b""))
        return bool(len(self._rest))


class _Digests:
    """Of the rows' bytes and of the master's: one, as long as they are the same."""

    def __init__(self) -> None:
        self._rows = self._master = hashlib.sha256()

    def add(self, rows: bytes, master: bytes | None) -> None:
        """Bytes of the rows, and what the master has in their place, None for the same."""
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


class _Comparison:
    """One claim, as its rows come."""

    def __init__(self, claim: Claim, master: _Stream | None, restore: Restore) -> None:
        self._claim = claim
        self._master = master
        self._restore = restore
        self._digests = _Digests()
        self._at = claim.range.start  # up to where both sides were looked at
        self._last: Offset | None = None
        self._is_open = False  # the row at `_at` is no record: nobody knows where it ends
        self._rows = 0
        self._differences: list[Difference] = []
        self._differing = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._claim.is_hole:
            for offset in batch.column("offset").to_pylist():
                self._note(offset, Kind.SURPLUS)
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
            with_master=self._master is not None,
        )

    def _verdict(self) -> Verdict:
        if self._claim.is_hole:
            return Verdict.REPLICA_DAMAGED if self._rows else Verdict.EQUAL
        self._pass_over(self._claim.range.end)
        verdict = self._digests.verdict(self._claim.checksum)
        if self._master is None and verdict is not Verdict.EQUAL:
            return Verdict.REPLICA_DAMAGED
        return verdict

    def _add(self, batch: pa.RecordBatch) -> None:
        """Rows that follow each other together, any others in halves of halves."""
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
        """The bytes of rows that follow each other as they should; None of any others."""
        if self._is_open or batch.column("size").null_count:
            return None
        offsets, sizes = batch.column("offset").to_numpy(), batch.column("size").to_numpy()
        ends = offsets + sizes
        if offsets[0] != self._at or ends[-1] > self._claim.range.end or (ends[:-1] != offsets[1:]).any():
            return None
        return self._restored(batch)

    def _restored(self, batch: pa.RecordBatch) -> bytes | None:
        try:
            return self._restore(batch)
        except CorruptRecord:
            return None

    def _add_records(self, batch: pa.RecordBatch, rebuilt: bytes) -> None:
        other = None if self._master is None else self._master.unless(rebuilt)
        self._digests.add(rebuilt, other)
        start = self._at
        if other is not None:
            for offset, size in zip(*(batch.column(name).to_pylist() for name in ("offset", "size")), strict=True):
                here = slice(offset - start, offset - start + size)
                if rebuilt[here] != other[here]:
                    self._note(offset, Kind.CHANGED)
        self._last = batch.column("offset")[-1].as_py()
        self._at = Offset(start + len(rebuilt))

    def _add_row(self, row: pa.RecordBatch) -> None:
        """A row that does not follow the one before it, or is no record."""
        offset = row.column("offset")[0].as_py()
        if offset < self._at or offset == self._last:
            self._note(offset, Kind.TWICE if offset == self._last else Kind.SURPLUS)
            self._digests.add(self._restored(row) or _NO_RECORD, b"")
            return
        self._pass_over(offset)
        rebuilt = self._joined(row)
        if rebuilt is not None:
            self._add_records(row, rebuilt)
            return
        self._note(offset, Kind.CHANGED)
        self._digests.add(_NO_RECORD, b"")
        self._last, self._is_open = offset, True

    def _pass_over(self, offset: Offset) -> None:
        """Go on at `offset`: what lies before it has no row, or one that is no record."""
        if offset > self._at:
            if not self._is_open:
                self._note(self._at, Kind.MISSING)
            lacking = () if self._master is None else self._master.parts(offset - self._at)
            for part in lacking:
                self._digests.add(b"", bytes(part))
            self._at = offset
        self._is_open = False

    def _note(self, offset: Offset, kind: Kind) -> None:
        self._differing += 1
        if len(self._differences) < LISTED:
            self._differences.append(Difference(offset, kind))
