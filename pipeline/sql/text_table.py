"""A result as a table for a person: as wide as the terminal, and without a command to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells

from sources.readable import visible

_GAP: Final = "  "
_NULL: Final = "NULL"
_MORE: Final = "…"
_NARROWEST: Final = 8
"""A text that is cut has so many characters at least."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A result for a person: columns side by side. Where they do not fit, one row is a block; several rows are cut.

    What others put into a message, or call a field, cannot command the terminal (`sources.readable`). A Table of rich
    would take seconds for a thousand rows, and break values between words, where it drops a blank.

    `rows` are texts, None for null; of a value no more than `most` characters are shown, None: all. Then nothing is cut
    to the width either: rows that do not fit are blocks.

    `numeric` says of each column whether it is set to the right, and never cut.
    """

    names: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[str | None]]
    most: int | None = None

    def shown(self, width: int | None) -> tuple[Iterator[str], bool]:
        """The lines for a terminal of `width`, or as wide as need be for None; and whether they are cut to it."""
        names = [visible(name) for name in self.names]
        rows = [[self._shown(value) for value in row] for row in self.rows]
        is_whole = width is None or self.most is None or len(rows) == 1
        if not is_whole:
            rows = [[visible(value) for value in row] for row in rows]
        widths = _widths(names, rows)
        fits = width is None or _line_width(widths) <= width
        if fits and not any("\n" in value for row in rows for value in row):
            return self._side_by_side(names, rows, widths), False
        if width is None or is_whole:
            return _blocks(names, rows, width), False
        return self._cut(names, rows, widths, width), True

    def _cut(self, names: list[str], rows: list[list[str]], natural: list[int], width: int) -> Iterator[str]:
        """The first columns, as many as have room, each as wide as it can be; the last cell of a line says of more."""
        least = [wide if right else min(wide, _NARROWEST) for wide, right in zip(natural, self.numeric, strict=True)]
        room, kept = width, len(least)
        if _line_width(least) > room:
            room -= len(_GAP) + len(_MORE)
            kept = max([1, *(count for count in range(1, len(least)) if _line_width(least[:count]) <= room)])
        widths = _shared(least[:kept], natural[:kept], room)
        for line in self._side_by_side(names[:kept], [row[:kept] for row in rows], widths):
            yield (
                line
                if kept == len(least)
                else f"{line}{' ' * (sum(widths) + len(_GAP) * kept - cell_len(line))}{_MORE}"
            )

    def _side_by_side(self, names: list[str], rows: list[list[str]], widths: list[int]) -> Iterator[str]:
        yield self._line(names, widths)
        yield _GAP.join("─" * width for width in widths)
        for row in rows:
            yield self._line(row, widths)

    def _line(self, values: list[str], widths: list[int]) -> str:
        cells = zip(map(_fitted, values, widths), widths, self.numeric, strict=False)
        padded = (
            " " * (width - cell_len(value)) + value if right else value + " " * (width - cell_len(value))
            for value, width, right in cells
        )
        return _GAP.join(padded).rstrip()

    def _shown(self, value: str | None) -> str:
        if value is None:
            return _NULL
        cut = value if self.most is None or len(value) <= self.most else value[: self.most] + _MORE
        return visible(cut, lines=True)


def _widths(names: list[str], rows: list[list[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _shared(least: list[int], natural: list[int], room: int) -> list[int]:
    """Widths between `least` and `natural` whose line has `room`: the widest columns have the same."""
    found = least
    for width in range(_NARROWEST, max(natural) + 1):
        wider = [max(few, min(wide, width)) for few, wide in zip(least, natural, strict=True)]
        if _line_width(wider) > room:
            break
        found = wider
    return found


def _fitted(value: str, width: int) -> str:
    return value if cell_len(value) <= width else chop_cells(value, max(1, width - 1))[0] + _MORE


def _blocks(names: list[str], rows: list[list[str]], width: int | None) -> Iterator[str]:
    margin = max(map(cell_len, names)) + len(_GAP)
    for number, row in enumerate(rows, 1):
        yield f"── row {number} ".ljust(width or margin, "─")
        for name, value in zip(names, row, strict=True):
            head = name + " " * (margin - cell_len(name))
            for line in _folded(value, None if width is None else max(1, width - margin)):
                yield (head + line).rstrip()
                head = " " * margin


def _folded(value: str, width: int | None) -> Iterator[str]:
    for line in value.split("\n"):
        yield from [line] if width is None or not line else chop_cells(line, width)
