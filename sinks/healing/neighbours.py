"""Look at the source that is to fill a hole: is it the same log around it, and which ids at its end are free?

It proves little that the source's records begin and end where the hole does: segment files of all brokers begin at the
same offsets. The replica knows the record before the hole and the one after it. If the source holds one of them, it
must have the same bytes there.

If entries are lost, nobody knows the last id among them. The hole reaches up to the id of the entry behind it, which
the replica holds as one that takes only its own id. At a source that holds all entries, it begins right behind the last
lost one. The ids in between are free there: they are not read, but they belong to the hole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from sinks.proof.stored_log import StoredLog, StoredRecord
from sinks.values.continuity import Link
from sources.errors import Rewritten
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

_FIRST_LOOK_BYTES = 1 << 16
SOURCE_HINT = "This is another log, or the master's log was rewritten since: check the path, or the address."


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The records around a hole that were compared and found equal; `before` is the one before it.

    If there are none, only the offsets say that the source is the same log.
    """

    before: Link | None
    is_after_equal: bool

    @property
    def are_known(self) -> bool:
        return self.before is not None or self.is_after_equal


def compare(
    stored: StoredLog, source: MasterLog, held: OffsetRange, hole: OffsetRange, committed: Offset
) -> Neighbours:
    """The records around `hole` that `source`, which holds `held`, has too.

    `committed` is the replica's position. Raises Rewritten if the source has different bytes for one of them, and
    whatever reading raises.
    """
    before = [record for record in (_before(stored, hole.start),) if record and held.holds(record.range)]
    after = [
        record for record in stored.records(OffsetRange(hole.end, Offset(hole.end + 1))) if held.holds(record.range)
    ]
    for record in (*before, *after):
        _check(source, record, committed)
    return Neighbours(Link.of(before[0].range, before[0].raw) if before else None, bool(after))


def _before(stored: StoredLog, end: Offset) -> StoredRecord | None:
    """The record that ends at `end`, searched for in growing steps, because its start is not known."""
    for size in _sizes(end):
        records = list(stored.records(OffsetRange(Offset(end - size), end)))
        if records:
            return records[-1] if records[-1].range.end == end else None
    return None


def _sizes(end: Offset) -> Iterator[int]:
    size = _FIRST_LOOK_BYTES
    while size < end:
        yield size
        size *= 4
    if end:
        yield end


def _check(source: MasterLog, record: StoredRecord, committed: Offset) -> None:
    found = b"".join(map(bytes, source.raw(record.range, committed=committed)))
    if found != record.raw:
        raise Rewritten(
            "the source has another record beside the hole than the replica",
            log=source.log_id,
            offset=record.range.start,
            expected=f"{record.range} with the bytes that were replicated",
            found="other bytes",
            hint=SOURCE_HINT,
        )


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
