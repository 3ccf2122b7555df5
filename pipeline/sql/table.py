"""A result for a person: columns side by side where they fit, else a block a row. Pure.

What others put into a message, or call a field, cannot command the terminal (`sources.visible`). A Table of rich would
take seconds for a thousand rows, and break values between words, where it drops a blank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells

from sources.visible import visible

_GAP: Final = "  "
_NULL: Final = "NULL"


@dataclass(frozen=True, slots=True)
class TextTable:
    """`rows` as texts, None for null; of a value no more than `most` characters are shown.

    `numeric` says of each column whether it is set to the right.
    """

    names: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[str | None]]
    most: int | None = None

    def lines(self, width: int | None) -> Iterator[str]:
        """For a terminal `width` characters wide; None: as wide as need be."""
        names = [visible(name) for name in self.names]
        rows = [[self._shown(value) for value in row] for row in self.rows]
        widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
        fits = width is None or sum(widths) + len(_GAP) * (len(widths) - 1) <= width
        if fits and not any("\n" in value for row in rows for value in row):
            return self._side_by_side(names, rows, widths)
        return _blocks(names, rows, width)

    def _side_by_side(self, names: list[str], rows: list[list[str]], widths: list[int]) -> Iterator[str]:
        yield self._line(names, widths)
        yield _GAP.join("─" * width for width in widths)
        for row in rows:
            yield self._line(row, widths)

    def _line(self, values: list[str], widths: list[int]) -> str:
        padded = (
            " " * (width - cell_len(value)) + value if right else value + " " * (width - cell_len(value))
            for value, width, right in zip(values, widths, self.numeric, strict=True)
        )
        return _GAP.join(padded).rstrip()

    def _shown(self, value: str | None) -> str:
        if value is None:
            return _NULL
        cut = value if self.most is None or len(value) <= self.most else value[: self.most] + "…"
        return visible(cut, lines=True)


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
