"""Ids at the end of a hole that no entry has. Pure.

Where entries are lost nobody knows the last id among them: the hole reaches up to the id of the entry behind it, which
the replica has as one that takes its own id only. A source that holds them all has it begin right behind the last of
them. The ids in between are free there; they are no part of what is to be read, and the hole's nonetheless.
"""

from __future__ import annotations

from bisect import bisect_right

from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange


def free_at_end(hole: OffsetRange, source: MasterLog, held: OffsetRange) -> OffsetRange:
    """The ids at the end of `hole` that `source`, which holds `held`, has free; empty where it says nothing of them.

    So it is unless its next entry is the one behind the hole. Raises as `source.boundary_after` does.
    """
    nothing = OffsetRange(hole.end, hole.end)
    if source.log_id.counts_bytes or not (held.start <= hole.end < held.end):
        return nothing
    if source.boundary_after(hole.end, held.end) != hole.end + 1:
        return nothing
    start = max(hole.start, held.start)
    ends = range(start, hole.end + 1)
    before = bisect_right(ends, hole.end, key=lambda at: source.boundary_after(Offset(at), held.end))
    return OffsetRange(Offset(start + max(before - 1, 0)), hole.end)
