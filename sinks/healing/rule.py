"""Where replica and master part by the master's own rule (`MasterLog.common_offset`), if it has one. Driver only.

Then the replica's records themselves are compared, from its beginning on, not what the ledger says of them; and
whatever differs goes, also all of it. Only a master that is empty, or begins too late to give again what would go, is
more likely a wrong path.
"""

from __future__ import annotations

from collections.abc import Sequence

from sinks.healing.divergence import Comparison, Divergence
from sources.offsets import Offset, OffsetRange


class ComparisonByRule(Comparison):
    """By the master's rule; of a master without one by the ledger's checksums."""

    def find(self, doubtful: Sequence[OffsetRange] = ()) -> Divergence | None:
        """As `Comparison.find`. To a rule no range is more doubtful than others."""
        common = self._master.common_offset(self._readable(OffsetRange(Offset(0), self._position)))
        if common is None:
            return super().find(doubtful)
        has_more = bool(self._ledger.overlapping(OffsetRange(common, self._position)))
        if not has_more and self._position <= self._bounds.end:
            return self._lost_commits()
        return self._divergence(common, is_proven=not self._bounds.is_empty and common >= self._bounds.start)
