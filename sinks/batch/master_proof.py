"""Prove that the master still holds what the replica took from it.

This is done before the first acknowledgement of a run and of each connection: a broker that comes back may have lost
its tail, may hold other bytes at the same offsets, or may be a different broker. Bytes that are read later are proven
where they are read (`sinks/batch/receiver.py`).

For most masters only the last record is compared. If that proves too little (`Traits.proves_all`), everything that
was replicated is: the master's bytes are read once, in order, and compared with the checksums of the ledger. So is what
was replicated from a place on where the master's own log is in doubt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress

from sinks.values.continuity import Link, written
from sinks.values.ledger_row import LedgerRow
from sources.bounds import check_within
from sources.errors import BelowMinimum, Recreated, Rewritten, naming
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange


def prove_master(
    master: MasterLog, position: Offset, link: Link | None, ledger: Callable[[], Sequence[LedgerRow]]
) -> None:
    """Prove that `master` still holds what the replica, at `position`, took from it. Always asks the master.

    `ledger` gives the ranges that are in the table, in order; it is called only if all of them have to be proven. What
    the master's retention has deleted meanwhile cannot be compared, and contradicts nothing.
    Raises AboveMaximum, Rewritten, Recreated, or the error that keeps the master from answering.
    """
    bounds = master.bounds()
    if bounds.is_empty and bounds.start != position:
        raise _recreated(master, position, bounds)
    proven = bounds.end  # behind that it may be in doubt whether the master's records are its log
    if proven < position:
        bounds = master.bounds(position)
    with suppress(BelowMinimum):
        check_within(OffsetRange(position, position), bounds, log=master.log_id)
        if master.traits.proves_all or proven < position:
            since = bounds.start if master.traits.proves_all else proven
            rows = [row for row in ledger() if row.start >= bounds.start and row.end > since]
            _compare_all(master, position, rows)
        if link is not None:
            _compare(master, position, link)


def _compare(master: MasterLog, position: Offset, link: Link) -> None:
    raw = b"".join(map(bytes, master.raw(link.range, committed=position)))
    with naming(master.log_id):
        link.check(raw)


def _compare_all(master: MasterLog, position: Offset, rows: Sequence[LedgerRow]) -> None:
    for run in _joined(rows):
        wanted = OffsetRange(run[0].start, run[-1].end)
        with closing(master.raw(wanted, committed=position)) as pieces:
            stream = _Stream(pieces)
            for row in run:
                found = stream.checksum_of(row.bytes)
                if found != row.checksum:
                    raise _rewritten(master, row, found)


def _joined(rows: Iterable[LedgerRow]) -> Iterator[list[LedgerRow]]:
    run: list[LedgerRow] = []
    for row in rows:
        if run and run[-1].end != row.start:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


class _Stream:
    """The master's bytes, consumed in order."""

    def __init__(self, pieces: Generator[memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def checksum_of(self, size_bytes: int) -> str:
        """The checksum of the next `size_bytes` bytes, or of all that are left if there are fewer."""
        digest = hashlib.sha256()
        while size_bytes:
            self._piece = self._piece or next(self._pieces, memoryview(b""))
            if not self._piece:
                break
            mine = self._piece[:size_bytes]
            digest.update(mine)
            size_bytes -= len(mine)
            self._piece = self._piece[len(mine) :]
        return written(digest)


def _rewritten(master: MasterLog, row: LedgerRow, found: str) -> Rewritten:
    return Rewritten(
        "the master has other records than those that were replicated",
        log=master.log_id,
        offset=row.start,
        expected=f"{row.range} with {row.checksum}",
        found=found,
        hint=Condition.REWRITTEN.hint_for(master.log_id.kind),
    )


def _recreated(master: MasterLog, position: Offset, bounds: OffsetRange) -> Recreated:
    return Recreated(
        "the master's log is empty, and the replica is not",
        log=master.log_id,
        offset=position,
        expected=f"a log that holds offset {position}",
        found=f"{bounds}",
        hint=Condition.RECREATED.hint_for(master.log_id.kind),
    )
