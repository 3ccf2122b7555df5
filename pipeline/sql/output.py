"""Where a result is written, and how a person sees it: standard output, or a file that is there whole or not at all.

A `TextTable` is as wide as the terminal, and gives it no command.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from rich.cells import cell_len, chop_cells
from rich.pager import SystemPager

from sources.errors import ConfigurationError
from sources.readable import visible

Format = Literal["table", "csv", "json", "parquet"]
_GAP: Final = "  "
_NULL: Final = "NULL"
_MORE: Final = "…"
_NARROWEST: Final = 8
"""A text that is cut has so many characters at least."""


@contextmanager
def destination(output: Path | None) -> Iterator[BinaryIO]:
    """The file `output`, which is replaced at the end; standard output for None.

    Who reads standard output may stop reading, as ``head`` does: that ends the block, and is no error.
    Raises ConfigurationError where the file cannot be written.
    """
    if output is None:
        with _until_closed():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    try:
        with replacing(output) as sink:
            yield sink
    except ConnectionError:
        raise  # of Spark's sockets
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}", found=error.strerror, hint="See --output.") from error


@contextmanager
def paged(height: int) -> Iterator[BinaryIO]:
    """Show the output once all of it is there: by the user's pager, if it has more lines than `height`."""
    sink = io.BytesIO()
    try:
        yield sink
    finally:
        text = sink.getvalue().decode()
        if text.count("\n") < height:
            sys.stdout.write(text)
        else:
            SystemPager().show(text)


@contextmanager
def _until_closed() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # what is still buffered would be complained about when the process ends
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def replacing(output: Path) -> Iterator[BinaryIO]:
    """A file that replaces `output` when the block ends without an error. Raises OSError."""
    if output.exists() and not output.is_file():  # a pipe or a device: there is nothing to replace
        with output.open("wb") as sink:
            yield sink
        return
    part = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with part.open("wb") as sink:
            yield sink
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


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
