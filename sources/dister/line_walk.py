"""From a file's bytes to lines, and to entries and the damage between them; only this module decides. Pure.

The walk is at an offset, behind the last entry. A line is

    ignored     if it has fewer than 10 bytes, or its id is not above the log's (expired: dister drops it, too)
    an entry    if its id is above: it takes the range from the walk's offset to its id + 1
    damage      otherwise; also an expired line with an id of the log that differs from that entry

Damage lies between two entries, m before it and n behind: [m + 1, n). If a broken line begins with digits that are an
id between the two, its entry must have been that one, and the damage ends behind it. Damaged lines without an entry
between them are one damage; between two ids that follow one another its range is empty. As long as no entry follows,
nobody can say where it ends, so it is not yet part of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sources.decoding.undecodable import as_damage
from sources.dister.entries import MAX_ID, SHORTEST_BYTES, Entry, decode_line, shown
from sources.dister.layout import BatchFile, batch_number
from sources.errors import CorruptRecord, LogError
from sources.offsets import Offset, OffsetRange

_HEAD = re.compile(rb"(?P<id>[0-9]{1,40}),[0-9]+,")
_DIGITS = re.compile(rb"[0-9]{1,40}")

Earlier = Callable[[int, int], bytes | None]
"""Returns the line of the entry with an id, among the lines of its file before a byte; None if it is not found."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `text`, without newline, begins at byte `at` of the file of `batch`; `is_whole` if it has a newline."""

    batch: BatchFile
    at: int
    text: bytes
    is_whole: bool

    @property
    def end(self) -> int:
        """The byte behind it and its newline."""
        return self.at + len(self.text) + self.is_whole

    @property
    def head_id(self) -> int | None:
        """The id of the entry that this seems to be, by its beginning; None if it seems to be none of its file."""
        match = _HEAD.match(self.text) if self.is_whole and len(self.text) >= SHORTEST_BYTES else None
        found = None if match is None else int(match["id"])
        return found if found is not None and batch_number(found) == self.batch.number else None

    @property
    def digits(self) -> int | None:
        """The number that it begins with, if that can be an id: all that may be left of a broken entry."""
        match = _DIGITS.match(self.text)
        return None if match is None or int(match[0]) > MAX_ID else int(match[0])


def split_lines(batch: BatchFile, at: int, blocks: Iterable[bytes]) -> Iterator[Line]:
    """Yield the lines of `blocks`, the file's bytes from the line start `at` on, and what follows the last newline."""
    parts: list[bytes] = []
    for block in blocks:
        first, *others = block.split(b"\n")
        parts.append(first)
        for other in others:
            line = Line(batch, at, b"".join(parts), is_whole=True)
            yield line
            at, parts = line.end, [other]
    rest = b"".join(parts)
    if rest:
        yield Line(batch, at, rest, is_whole=False)


@dataclass(frozen=True, slots=True)
class Sound:
    """An entry, and its own range of the log."""

    start: Offset
    entry: Entry
    line: Line

    @property
    def covered(self) -> OffsetRange:
        return OffsetRange(self.start, Offset(self.entry.id + 1))

    @property
    def length(self) -> int:
        """The number of bytes it takes, including the newline."""
        return len(self.line.text) + 1


@dataclass(frozen=True, slots=True)
class Broken:
    """Something else than an entry, with its bytes; None if a file is missing. `error` is the first thing wrong."""

    covered: OffsetRange
    raw: bytes | None
    error: LogError
    line: Line | None

    @property
    def length(self) -> int:
        return len(self.raw or b"")


class LineWalk:
    """A walk, now at offset `end`. Feed it the lines in order; it counts the `expired` ones."""

    def __init__(self, end: Offset) -> None:
        self.end = end
        self.expired = 0
        self._lines: list[Line] = []
        self._error: LogError | None = None

    @property
    def open_damage(self) -> Broken | None:
        """What is wrong behind the last entry, as far as anybody can say; None for nothing."""
        if self._error is None:
            return None
        raw = b"".join(line.text + b"\n" * line.is_whole for line in self._lines) if self._lines else None
        return Broken(OffsetRange(self.end, self.end), raw, self._error, self._lines[0] if self._lines else None)

    def missing(self, error: LogError) -> None:
        """Note that a batch file is missing here."""
        self._error = self._error or error

    def feed(self, line: Line, earlier: Earlier) -> Iterator[Broken | Sound]:
        """Yield what is certain after this line."""
        if len(line.text) < SHORTEST_BYTES:
            return
        try:
            with as_damage(None):
                entry = entry_of(line)
            if entry.id < max(self.end, 1):
                self._expire(entry, line, earlier)
                return
        except CorruptRecord as error:
            self._lines.append(line)
            self._error = self._error or error
            return
        yield from self._damage_before(entry.id)
        start, self.end = self.end, Offset(entry.id + 1)
        yield Sound(start, entry, line)

    def _expire(self, entry: Entry, line: Line, earlier: Earlier) -> None:
        known = earlier(entry.id, line.at)
        if known is not None and known != line.text:
            raise CorruptRecord(
                f"the id {entry.id} stands here again, and says something else",
                expected=shown(known),
                found=shown(line.text),
            )
        self.expired += 1

    def _damage_before(self, following: int) -> Iterator[Broken]:
        found = self.open_damage
        if found is None:
            return
        claimed = [line.digits for line in self._lines]
        end = max((one + 1 for one in claimed if one is not None and self.end <= one < following), default=following)
        start, self.end, self._lines, self._error = self.end, Offset(end), [], None
        yield Broken(OffsetRange(start, self.end), found.raw, found.error, found.line)


def entry_of(line: Line) -> Entry:
    """Return the entry that `line` is in its file. Raises CorruptRecord."""
    if not line.is_whole:
        raise CorruptRecord(
            "the last line of a batch file has no end, though later files follow",
            expected="a newline",
            found=f"the end of the file after {len(line.text)} bytes",
        )
    entry = decode_line(line.text)
    if batch_number(entry.id) != line.batch.number:
        raise CorruptRecord(
            "the entry belongs in another batch file",
            expected=f"an id of batch {line.batch.number}",
            found=f"{entry.id}, of batch {batch_number(entry.id)}",
        )
    return entry
