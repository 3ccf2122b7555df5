"""Check and fix: up to where a replica and its leader have the same history. Pure; the two rules.

safe        Both are compared entry by entry from the beginning, id and line: up to the last one before the first that
            differs.

faithful    The rule that dister means (`checkAndFixNodeData`, `onMsgReplValidLogIdCheckFix`), which looks at ids alone.
            From the replica's last id on the leader goes back in windows: of its entries with an id above
            ``cursor - SPAN`` the first WINDOW, and of these the ids below the cursor. The replica takes as many of its
            own ids, from the window's first on. If the window ends in at least MATCHES ids that follow one another on
            both sides, the first of these is the point: the smallest id from which on all of the window is equal. Else
            the window's first id is the next cursor. Where no id is left, nothing is in common.

Faithful may go back further than it has to, and it believes what lies before the point unseen. Where the replica's last
entry is the leader's, nothing is looked for. dister itself compares with a wrong variable, so that it never finds
anything, and at the beginning of the log it looks for ever.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sources.dister.format.entries import RANDOM
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange

WINDOW: Final = 1000
SPAN: Final = WINDOW * RANDOM
MATCHES: Final = 3

Line = tuple[OffsetRange, bytes | memoryview]
"""An entry: the range it takes, which ends behind its id, and its line with the newline."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What going back came to: `found` is the id of the last entry to keep, None for none; after so many `windows`."""

    found: int | None
    windows: int


def lines_of(chunk: Chunk, lengths: npt.NDArray[np.int64]) -> Iterator[Line]:
    """The entries of `chunk`, which take `lengths` bytes."""
    at = 0
    offsets, sizes = (chunk.records.column(name).to_pylist() for name in ("offset", "size"))
    for start, size, length in zip(offsets, sizes, lengths.tolist(), strict=True):
        yield OffsetRange(start, Offset(start + size)), chunk.raw[at : at + length]
        at += length


def safe_point(replica: Iterable[Line], leader: Iterable[Line], minimum: Offset) -> Offset:
    """Where the last equal entry ends before the first that differs; 0 where the first one does.

    Of what only one side has nothing can be compared: what lies below `minimum` the leader has no more, and what lies
    between two entries of the replica that do not join is a hole. What is below the minimum is believed where nothing
    above it says otherwise. One entry of each side is in memory; a line is good until the next is asked for.
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
    """Where the replica's last entry ends if the leader has it; else behind what `walk_back` finds, 0 for nothing.

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
    """The faithful rule for ascending ids. Each window ends below the one before, so it ends."""
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
    """How many ids at the end of the window follow one another in the replica's `own`, too."""
    at = bisect_left(own, ids[-1])
    if at == len(own):
        return 0
    pairs = zip(reversed(ids), reversed(own[: at + 1]), strict=False)
    return next((count for count, (one, other) in enumerate(pairs) if one != other), min(len(ids), at + 1))
