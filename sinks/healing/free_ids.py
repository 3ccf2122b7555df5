"""Find the ids at the end of a hole that no entry has. Pure.

If entries are lost, nobody knows the last id among them. The hole reaches up to the id of the entry behind it, which
the replica holds as one that takes only its own id. At a source that holds all entries, it begins right behind the last
lost one. The ids in between are free there: they are not read, but they belong to the hole.
"""

from __future__ import annotations

from bisect import bisect_right

from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange


def free_at_end(hole: OffsetRange, source: MasterLog, held: OffsetRange) -> OffsetRange:
    """The ids at the end of `hole` that are free in `source`, which holds `held`.

    Empty unless the source's next entry is the one behind the hole. Raises as `source.boundary_after` does.
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
