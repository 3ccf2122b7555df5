"""Find where replica and master part by the master's own rule, if it has one. Driver only.

With `MasterLog.common_offset` the replica's records themselves are compared, from the replica's beginning on, instead
of the ledger's checksums. Whatever differs is taken out, even if that is all of it. Only a master that is empty, or
begins too late to give those records again, is more likely a wrong path.

With the epochs of elected masters (`MasterLog.parting`) everything above the common point of both lists is taken out.
Two groups may have an epoch in common, at least their first, so the ledger's checksums have to agree up to that point.
Otherwise epochs and bytes contradict each other, and a person has to decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from sinks.books.ledger_rows import LedgerRows
from sinks.healing.divergence import Comparison, Divergence
from sinks.proof.stored_log import StoredLog
from sources.epochs import Parting
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange


class ComparisonByRule(Comparison):
    """A comparison by the master's rule, or by the ledger's checksums if it has none.

    `parted` says where the epochs of the master and of the replica at `position` part; None if they do not.
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
        super().__init__(master, ledger, stored, position, bounds)
        self._parted = parted

    def find(self, doubtful: Sequence[OffsetRange] = ()) -> Divergence | None:
        """Like `Comparison.find`. A rule ignores the `doubtful` ranges."""
        if self._parted is not None and self._parted.common is not None:
            return self._by_epochs(self._parted, self._parted.common)
        common = self._master.common_offset(self._readable(OffsetRange(Offset(0), self._position)))
        if common is None:
            return super().find(doubtful)
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
