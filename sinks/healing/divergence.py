"""Find where a replica and its master part: by the master's own rule, or by checksums and bytes. Driver only.

With `MasterLog.common_offset` the replica's records themselves are compared, from the replica's beginning on, instead
of the ledger's checksums. Whatever differs is taken out, even if that is all of it. Only a master that is empty, or
begins too late to give those records again, is more likely a wrong path.

With the epochs of elected masters (`MasterLog.parting`) everything above the common point of both lists is taken out.
Two groups may have an epoch in common, at least their first, so the ledger's checksums have to agree up to that point.
Otherwise epochs and bytes contradict each other, and a person has to decide.

Of other masters only what both have can be compared: rows of the ledger that lie between the master's minimum and its
maximum. Rows below the minimum are believed to agree if one above it is proven to. If all comparable rows differ,
nothing is proven, and it may be a different master.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sinks.books.ledger import LedgerRows
from sinks.healing.common_point import last_agreeing, last_equal, last_left
from sinks.proof.master_bytes import Dropping, side_by_side
from sinks.proof.stored import StoredLog
from sinks.values.continuity import Link, written
from sinks.values.ledger_row import LedgerRow
from sources.epochs import Parting
from sources.errors import CorruptRecord, ReplicaError
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import END, Offset, OffsetRange

_FIRST_LOOK_BYTES = 64 * 1024 * 1024
_WIDER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Replica and master are the same up to `common`, and no further; the replica has offsets below `end`.

    RECREATED: nothing proves that they are the same log; then `common` is the master's minimum. FAILED_OVER: the epochs
    of both agree with that; EPOCHS_CONTRADICT: they do not. REPLICA_DAMAGED: the table has nothing from `common` on,
    though its ledger says that it once had.
    """

    condition: Condition
    common: Offset
    end: Offset
    cause: str

    @property
    def out(self) -> OffsetRange:
        """The range to take out. If it is another log, that is all: no row below its minimum is proven either."""
        return OffsetRange(Offset(0) if self.condition is Condition.RECREATED else self.common, self.end)


class Comparison:
    """Compares a replica at `position` with its master, which holds `bounds`. No row is compared twice.

    `parted` says where the epochs of both part; None if they do not.
    """

    def __init__(
        self,
        master: MasterLog,
        ledger: LedgerRows,
        stored: StoredLog,
        position: Offset,
        bounds: OffsetRange,
        parted: Parting | None = None,
    ) -> None:
        self._master = master
        self._ledger = ledger
        self._stored = stored
        self._position = position
        self._bounds = bounds
        self._parted = parted
        self._dropping = Dropping(master, position)
        self._answers: dict[LedgerRow, bool] = {}

    @property
    def comparisons(self) -> int:
        """How many rows of the ledger were compared with the master."""
        return len(self._answers)

    def find(self, doubtful: Sequence[OffsetRange] = ()) -> Divergence | None:
        """Find where the two part; None if nothing that can be compared differs.

        In the `doubtful` ranges the master was found to have other bytes before: they are compared separately, because
        the rows behind them may agree. A rule ignores them. Raises what reading the master, the ledger or the table
        raises.
        """
        if self._parted is not None and self._parted.common is not None:
            return self._by_epochs(self._parted, self._parted.common)
        common = self._master.common_offset(self._readable(OffsetRange(Offset(0), self._position)))
        if common is None:
            return self._by_checksums(doubtful)
        has_more = bool(self._ledger.overlapping(OffsetRange(common, self._position)))
        if not has_more and self._position <= self._bounds.end:
            return self._lost_commits()
        return self._divergence(common, is_proven=not self._bounds.is_empty and common >= self._bounds.start)

    def _by_epochs(self, parted: Parting, common: Offset) -> Divergence:
        rows, agreeing = self._search(common)
        floor = self._bounds.start if agreeing is None else agreeing.end
        link = self._last_equal(rows, floor, common)
        reached = floor if link is None else link.end
        if reached == common and (agreeing or link):
            return Divergence(condition=parted.condition, common=common, end=self._position, cause=parted.cause)
        same = f"up to {reached} only" if agreeing or link else "nowhere"
        cause = f"{parted.cause}; so both are the same up to {common}, and by their bytes {same}"
        contradicts = Condition.EPOCHS_CONTRADICT
        return Divergence(condition=contradicts, common=min(reached, common), end=self._position, cause=cause)

    def _by_checksums(self, doubtful: Sequence[OffsetRange]) -> Divergence | None:
        doubt = self._first_doubt(doubtful)
        ceiling = min(self._position, self._bounds.end) if doubt is None else doubt.start
        rows, agreeing = self._search(ceiling)
        is_all = ceiling == self._position and doubt is None
        if is_all and agreeing is not None and agreeing.end == rows[-1].end:
            return self._lost_commits()
        floor = self._bounds.start if agreeing is None else agreeing.end
        link = self._last_equal(rows, floor, self._bounds.end)
        reached = floor if link is None else link.end
        if is_all and (not rows or reached == rows[-1].end):
            return self._lost_commits()
        if doubt is not None and reached >= doubt.end:  # every record is the same: the ledger is wrong
            return self._by_checksums([one.starting_at(doubt.end) for one in doubtful if one.end > doubt.end])
        return self._divergence(reached, is_proven=agreeing is not None or link is not None)

    def is_equal(self, wanted: OffsetRange) -> bool:
        """Whether all rows of the ledger in `wanted` can be compared, and agree."""
        rows = self._ledger.overlapping(wanted)
        return bool(rows) and all(self._is_comparable(row, self._bounds.end) and self._agrees(row) for row in rows)

    def _first_doubt(self, doubtful: Sequence[OffsetRange]) -> LedgerRow | None:
        rows = (row for one in sorted(doubtful) for row in self._ledger.overlapping(one))
        comparable = (row for row in rows if self._is_comparable(row, self._bounds.end))
        return next((row for row in comparable if not self._agrees(row)), None)

    def _search(self, ceiling: Offset) -> tuple[list[LedgerRow], LedgerRow | None]:
        """Read rows that begin at or below `ceiling`, as far back as needed; find the last one that agrees, if any."""
        look_bytes = _FIRST_LOOK_BYTES
        while True:
            start = max(self._bounds.start, ceiling - look_bytes)
            rows = self._ledger.overlapping(OffsetRange(Offset(start), Offset(max(start, ceiling) + 1)))
            comparable = [row for row in rows if self._is_comparable(row, ceiling)]
            agreeing = last_agreeing(comparable, self._agrees)
            if agreeing is not None or start == self._bounds.start:
                return rows, agreeing
            look_bytes *= _WIDER

    def _last_equal(self, rows: Sequence[LedgerRow], floor: Offset, ceiling: Offset) -> Link | None:
        """The last record between `floor` and `ceiling` that equals the master's, in the first row that differs.

        If no row agrees, that is the first row that the master has from its start, and the rest of the row before it.
        """
        above = [row for row in rows if row.end > floor]
        if not above:
            return None
        differing = next((row for row in above if row.start >= floor), above[-1])
        start, end = max(floor, above[0].start), min(differing.end, ceiling)
        if end <= start:
            return None
        wanted = OffsetRange(start, end)
        if self._dropping.is_known:
            return last_left(self._both(wanted))
        raw = self._master.raw(wanted, committed=self._position)
        return last_equal(self._readable(wanted), raw, start, counts_bytes=self._master.log_id.counts_bytes)

    def _readable(self, wanted: OffsetRange) -> Iterator[tuple[OffsetRange, bytes]]:
        """The replica's records, up to the first one that cannot be read, which does not equal the master's either."""
        with suppress(ReplicaError, CorruptRecord):
            yield from ((record.range, record.raw) for record in self._stored.records(wanted))

    def _lost_commits(self) -> Divergence | None:
        """Rows that the table has lost: the ledger is written after a commit, so the table had all that it lists."""
        above = self._ledger.overlapping(OffsetRange(self._position, END))
        if not above:
            return None
        cause = f"the table ends at {self._position}, and its ledger at {above[-1].end}: its newest commits are gone"
        return Divergence(condition=Condition.REPLICA_DAMAGED, common=self._position, end=above[-1].end, cause=cause)

    def _divergence(self, reached: Offset, *, is_proven: bool) -> Divergence:
        if not is_proven:
            cause = f"nothing that the master holds, {self._bounds}, is what was replicated"
            return Divergence(condition=Condition.RECREATED, common=self._bounds.start, end=self._position, cause=cause)
        if self._position > self._bounds.end:
            cause = f"the master's log ends at {self._bounds.end}, the replica at {self._position}"
            return Divergence(condition=Condition.ABOVE_MAXIMUM, common=reached, end=self._position, cause=cause)
        cause = f"from offset {reached} on the master has other bytes than those that were replicated"
        return Divergence(condition=Condition.REWRITTEN, common=reached, end=self._position, cause=cause)

    def _is_comparable(self, row: LedgerRow, ceiling: Offset) -> bool:
        return self._bounds.start <= row.start and row.end <= ceiling

    def _agrees(self, row: LedgerRow) -> bool:
        if row not in self._answers:
            is_equal = not self._dropping.is_known and self._checksum(row) == row.checksum
            self._answers[row] = is_equal or (self._dropping.does() and self._left_checksum(row) == row.checksum)
        return self._answers[row]

    def _checksum(self, row: LedgerRow) -> str:
        digest = hashlib.sha256()
        for piece in self._master.raw(row.range, committed=self._position):
            digest.update(piece)
        return written(digest)

    def _left_checksum(self, row: LedgerRow) -> str:
        """The checksum of the master's records, with the replica's for those that the master has dropped."""
        digest = hashlib.sha256()
        for _, mine, theirs in self._both(row.range):
            digest.update(mine or b"" if theirs is None else theirs)
        return written(digest)

    def _both(self, wanted: OffsetRange) -> Iterator[tuple[Offset, bytes | None, bytes | None]]:
        ours = ((Offset(covered.end - 1), raw) for covered, raw in self._readable(wanted))
        return side_by_side(ours, self._dropping.records(wanted))
