"""The search for an id in a batch file, without reading all of it. Ids in a file ascend, but need not.

A leader that lost its data file begins again with low ids, behind the existing ones; these lines are expired. In a file
that has some, bisection may lead to a line behind the one that counts. So a result is trusted only

* if it is the very id that was asked for. Random parts make it improbable that a regressing run has the same one;
* and if no line has that id or a higher one among the `LOOK_BACK_BYTES` before it, and at `_PROBES` places from the
  beginning of the file to there.

A run of expired lines is overlooked only if it repeats ids of the log, is longer than `LOOK_BACK_BYTES`, and hides
less than one part in `_PROBES` of the file. If a result is not trusted, the answer is None: walk the file from its
first line, which is always right. A file no longer than `LOOK_BACK_BYTES` is read line by line anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sources.dister.files.batch_bytes import BatchBytes
from sources.dister.format.line_walk import LineWalk, Sound, entry_of
from sources.dister.format.lines import Line
from sources.errors import CorruptRecord
from sources.offsets import Offset

LOOK_BACK_BYTES: Final = 64 * 1024
_PROBES: Final = 16
_WIDER: Final = 16
_NO_HEAD: Final = (-1, None)


class IdSearch:
    """Searches one open file; also a `line_walk.Earlier`."""

    def __init__(self, file: BatchBytes) -> None:
        self._file = file

    def find(self, entry_id: int) -> Line | None:
        """Return the line of the entry with that id; None if it is not there, or not trusted."""
        return self._find(entry_id, self._file.size)

    def line_of(self, entry_id: int, before: int) -> bytes | None:
        found = self._find(entry_id, before)
        return None if found is None else found.text

    def last_entry(self, known: Offset | None = None) -> Sound | None:
        """Return the entry with the highest id in the file; None if it has none.

        The start of its range is not determined. An entry that ends before `known` is trusted only after reading all of
        the file.
        """
        start = self._near(self._file.size)
        found = self._entries_from(start)
        if start and (found is None or not self._is_last(*found, known)):
            found = self._entries_from(0)
        return found and found[1]

    def _is_last(self, first: Sound, last: Sound, known: Offset | None) -> bool:
        return last.covered.end >= (known or 0) and self._is_below(first.entry.id, first.line.at)

    def _find(self, entry_id: int, before: int) -> Line | None:
        low, high = 0, before
        while high - low > LOOK_BACK_BYTES:
            middle = (low + high) // 2
            head_id, line = next(self._heads(middle, high), _NO_HEAD)
            if line is None or head_id >= entry_id:
                high = middle
            else:
                low = line.end
        for head_id, line in self._heads(low, before):
            if head_id >= entry_id and _is_entry(line):
                return line if head_id == entry_id and self._is_first(entry_id, low) else None
        return None

    def _is_first(self, entry_id: int, low: int) -> bool:
        """Whether, as far as it looks, all ids before byte `low` are below `entry_id`."""
        start = self._near(low)
        return all(head_id < entry_id for head_id, _ in self._heads(start, low)) and self._is_below(entry_id, start)

    def _near(self, stop: int) -> int:
        """Return the start of a line from which on the lines cover the `LOOK_BACK_BYTES` before `stop`."""
        back = 2 * LOOK_BACK_BYTES
        while back < stop:
            _, line = next(self._heads(stop - back, stop), _NO_HEAD)
            if line is not None and line.at <= stop - LOOK_BACK_BYTES:
                return line.at
            back *= _WIDER
        return 0

    def _is_below(self, entry_id: int, stop: int) -> bool:
        """Whether the ids at some evenly spread places before byte `stop` are below `entry_id`."""
        places = {stop * number // _PROBES for number in range(_PROBES)}
        return all(next(self._heads(place, stop), _NO_HEAD)[0] < entry_id for place in places)

    def _heads(self, at: int, stop: int) -> Iterator[tuple[int, Line]]:
        """Yield the lines that begin in ``[at, stop)`` and seem to be entries, with their ids."""
        return ((line.head_id, line) for line in self._file.lines(at, stop) if line.head_id is not None)

    def _entries_from(self, start: int) -> tuple[Sound, Sound] | None:
        """Return the first and the last entry of what begins at byte `start`, treated as a log of its own."""
        walk, found = LineWalk(Offset(0)), None
        for line in self._file.lines(start):
            if line.is_whole:
                for piece in walk.feed(line, _Nothing()):
                    if isinstance(piece, Sound):
                        found = (found[0] if found else piece, piece)
        return found


def _is_entry(line: Line) -> bool:
    try:
        entry_of(line)
    except CorruptRecord:
        return False
    return True


class _Nothing:
    """A `line_walk.Earlier` without any earlier lines."""

    def line_of(self, entry_id: int, before: int) -> None:
        return None
