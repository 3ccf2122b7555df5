"""The ranges of a log whose bytes the ledger proves, and the proof of them. Pure.

At any version of the log table, its rows lie in the ranges of the ledger below the position; these and the holes fill
``[0, position)``. The ledger is another table. So it may be a moment older, and lack what the newest commits owe to it
(`sinks.state.log_state.LogState`, `sinks.state.holes.Holes`), or newer, and have what a backfill or the stream has
added since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from sinks.proof.completeness import check_filled
from sinks.state.holes import Holes, joined
from sinks.values.continuity import written
from sinks.values.ledger_row import LedgerRow
from sources.errors import Divergent
from sources.loss import Condition
from sources.offsets import LogId, Offset


def proven_ranges(
    log_id: LogId, ledger: Iterable[LedgerRow], owed: Iterable[LedgerRow], holes: Holes, position: Offset
) -> list[LedgerRow]:
    """The rows of `ledger`, and of those `owed` to it, that match the table's `holes` and `position`, in order.

    Raises CoverageError if these rows and the holes do not fill everything below `position` exactly once.
    """
    found = [row for row in ledger if row.end <= position and not holes.within(row.range)]
    known = Holes(ranges=joined([*(row.range for row in found), *holes.ranges]))
    found += [row for row in owed if row.end <= position and not known.within(row.range)]
    found.sort(key=lambda row: row.range)
    check_filled(log_id, (row.range for row in found), holes, position)
    return found


class Proof:
    """Compares the checksums of ranges with a stream of bytes, in order."""

    def __init__(self, log_id: LogId, proven: Iterable[LedgerRow]) -> None:
        self._log_id = log_id
        self._rows = iter(proven)
        self._next()

    def take(self, data: memoryview) -> None:
        """Take the next bytes. Raises Divergent at the end of a range whose bytes are not what was replicated."""
        while data:
            mine = data[: self._missing_bytes]
            self._digest.update(mine)
            self._missing_bytes -= len(mine)
            data = data[len(mine) :]
            if not self._missing_bytes:
                self._check()
                self._next()

    def _next(self) -> None:
        self._row = next(self._rows, None)
        self._missing_bytes = 0 if self._row is None else self._row.range.size
        self._digest = hashlib.sha256()

    def _check(self) -> None:
        if self._row is None:
            raise ValueError("more bytes than the ranges have")
        check_proven(self._log_id, self._row, written(self._digest))


def check_proven(log_id: LogId, row: LedgerRow, found: str) -> None:
    """Raises Divergent unless `found` is the checksum of `row`."""
    if found != row.checksum:
        raise Divergent(
            f"the rows of {row.range} do not give the bytes that were replicated",
            log=log_id,
            offset=row.start,
            expected=row.checksum,
            found=found,
            hint=Condition.REPLICA_DAMAGED.hint,
        )


def check_joined(log_id: LogId, records: pa.RecordBatch, at: Offset) -> None:
    """Raises Divergent unless `records` follow each other from offset `at` on."""
    offsets = records.column("offset").to_numpy()
    sizes = records.column("size").to_numpy().astype(np.int64)
    expected = at + np.cumsum(sizes) - sizes
    wrong = np.flatnonzero(offsets != expected)
    if wrong.size:
        raise not_joined(log_id, Offset(int(expected[wrong[0]])), f"the row of {offsets[wrong[0]]}")


def not_joined(log_id: LogId, at: Offset, found: str) -> Divergent:
    """The error that says that the log table lacks a row, or has one twice."""
    return Divergent(
        "a row of the log table is missing, or there twice",
        log=log_id,
        offset=at,
        expected="a record that starts here",
        found=found,
        hint=Condition.REPLICA_DAMAGED.hint,
    )
