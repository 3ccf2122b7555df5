"""Check and fix: how far a replica and its leader have the same history. Pure. There are two rules.

safe        Compare both entry by entry from the beginning, id and line; stop at the last entry before the first that
            differs.

faithful    The rule that dister intends (`checkAndFixNodeData`, `onMsgReplValidLogIdCheckFix`), which looks only at
            ids. From the replica's last id on the leader goes back in windows: the first WINDOW of its entries with an
            id above ``cursor - SPAN``, and of these the ids below the cursor. The replica takes as many of its own ids,
            from the window's first on. If the window ends in at least MATCHES ids that follow one another on both
            sides, the first of these is the point: the smallest id from which on all of the window is equal. Otherwise
            the window's first id is the next cursor. When no id is left, nothing is in common.

The faithful rule may go back further than necessary, and it trusts what lies before the point without looking. If the
replica's last entry is the leader's, it does not search. dister itself compares with a wrong variable, so it never
finds anything, and at the beginning of the log it searches for ever.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sources.dister.entries import RANDOM
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange

WINDOW: Final = 1000
SPAN: Final = WINDOW * RANDOM
MATCHES: Final = 3

Line = tuple[OffsetRange, bytes | memoryview]
"""An entry: the range it takes, which ends behind its id, and its line with the newline."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of going back: `found` is the id of the last entry to keep, None for none, after `windows` windows."""

    found: int | None
    windows: int


def lines_of(chunk: Chunk, lengths: npt.NDArray[np.int64]) -> Iterator[Line]:
    at = 0
    offsets, sizes = (chunk.records.column(name).to_pylist() for name in ("offset", "size"))
    for start, size, length in zip(offsets, sizes, lengths.tolist(), strict=True):
        yield OffsetRange(start, Offset(start + size)), chunk.raw[at : at + length]
        at += length


def safe_point(replica: Iterable[Line], leader: Iterable[Line], minimum: Offset) -> Offset:
    """Return where the last equal entry before the first difference ends; 0 if the first entry differs.

    What only one side has cannot be compared: the leader has nothing below `minimum` any more, and what lies between
    two entries of the replica that do not join is a hole. What is below the minimum is trusted unless something above
    it contradicts. One entry of each side is in memory; a line is valid until the next is requested.
    """
    entries = iter(leader)
    upcoming = next(entries, None)
    believed = common = Offset(0)
    for covered, line in replica:
        if covered.end <= minimum:
            believed = covered.end
            continue
        while upcoming is not None and upcoming[0].end <= covered.start:
            upcoming = next(entries, None)
        if upcoming is None or (upcoming[0].end, upcoming[1]) != (covered.end, line):
            return common
        common = covered.end
        upcoming = next(entries, None)
    return max(believed, common)


def faithful_point(replica: Iterable[Line], leader: Iterable[Line]) -> tuple[Offset, Walk]:
    """Return the end of the replica's last entry if the leader has it; else of what `walk_back` finds, 0 for nothing.

    The ids of both are in memory.
    """
    mine, last = array("q"), None
    for covered, line in replica:
        mine.append(covered.end - 1)
        last = (covered, bytes(line))
    theirs, is_valid = array("q"), last is None
    for covered, line in leader:
        theirs.append(covered.end - 1)
        is_valid = is_valid or (covered, line) == last
    if is_valid:
        return Offset(mine[-1] + 1 if mine else 0), Walk(mine[-1] if mine else None, 0)
    walk = walk_back(theirs, mine)
    return Offset(0 if walk.found is None else walk.found + 1), walk


def walk_back(leader: Sequence[int], replica: Sequence[int]) -> Walk:
    """Apply the faithful rule to ascending ids. Each window ends below the one before, so this terminates."""
    cursor = replica[-1] if replica else 0
    windows = 0
    while True:
        windows += 1
        start = bisect_right(leader, cursor - SPAN)
        ids = leader[start : min(start + WINDOW, bisect_left(leader, cursor))]
        if not ids:
            return Walk(None, windows)
        own = bisect_left(replica, ids[0])
        matching = _matching_end(ids, replica[own : own + len(ids)])
        if matching >= MATCHES:
            return Walk(ids[-matching], windows)
        cursor = ids[0]


def _matching_end(ids: Sequence[int], own: Sequence[int]) -> int:
    """Return how many ids at the end of the window follow one another in the replica's `own`, too."""
    at = bisect_left(own, ids[-1])
    if at == len(own):
        return 0
    pairs = zip(reversed(ids), reversed(own[: at + 1]), strict=False)
    return next((count for count, (one, other) in enumerate(pairs) if one != other), min(len(ids), at + 1))
