"""Splits blocks of a batch file's bytes into lines of any length. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sources.dister.files.layout import BatchFile, batch_number
from sources.dister.format.entries import MAX_ID, SHORTEST_BYTES

_HEAD = re.compile(rb"(?P<id>[0-9]{1,40}),[0-9]+,")
_DIGITS = re.compile(rb"[0-9]{1,40}")


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
