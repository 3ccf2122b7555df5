"""Segment files of a commit log, rebuilt from its bytes (`sources.rebuilt_folder`).

Sizes and names are what brokers expect (`segment_files`): one size for all files, each named after its first offset,
which is a multiple of that size. Whatever is not written (the rest of the last file, and holes) is zeros and takes no
space on the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rebuilt_folder import RebuiltFolder
from sources.records import BLANK

DEFAULT_FILE_SIZE_BYTES: Final = 1024 * 1024 * 1024
"""The default of mappedFileSizeCommitLog."""
_SEGMENT: Final = re.compile(r"\d{20}")


def file_size_bytes(stretches: Iterable[tuple[Offset, Iterator[Offset]]]) -> int | None:
    """Derive the size of a log's files from the blanks in it; None if they do not tell.

    `stretches` are the starts of the parts of the log without holes, each with the ends of the blanks in it. A file
    ends in a blank, so two successive ends are one file apart, and so are the log's start and the first end.
    """
    for start, blank_ends in stretches:
        first, second = next(blank_ends, None), next(blank_ends, None)
        edges = [edge for edge in (second, first, start) if edge is not None]
        for end, before in pairwise(edges):
            if end % (end - before) == 0:
                return end - before
    return None


def check_file_ends(records: pa.RecordBatch, size_bytes: int) -> None:
    """Check that in consecutive `records` the blanks, and nothing else, end files. Raises CorruptRecord."""
    if not records.num_rows:
        return
    offsets, sizes = (records.column(name).to_numpy().astype(np.int64) for name in ("offset", "size"))
    ends = offsets + sizes
    is_blank = pc.equal(records.column("kind"), BLANK).to_numpy(zero_copy_only=False)
    reached = ends // size_bytes - offsets // size_bytes  # how many files end in or with it
    wrong = np.flatnonzero((reached != is_blank) | (is_blank & (ends % size_bytes != 0)))
    if wrong.size:
        at = int(wrong[0])
        raise CorruptRecord(
            f"the log does not fit into files of {size_bytes} bytes",
            offset=int(offsets[at]),
            expected="a blank at the end of each file, and nowhere else",
            found=f"a {records.column('kind')[at]} of {sizes[at]} bytes",
            hint="Give the master's mappedFileSizeCommitLog with --file-size-bytes.",
        )


class RebuiltFiles:
    """A context manager for files that are written in order. Unless `finish` is called, none of them stays.

    Every method raises ConfigurationError if the disk is full, or may not be written.
    """

    def __init__(self, directory: Path, size_bytes: int) -> None:
        """Prepare to write `directory`, which must be empty or missing; otherwise raises ConfigurationError."""
        self._folder = RebuiltFolder(directory, _SEGMENT)
        self._size_bytes = size_bytes
        self._starts: list[Offset] = []
        self._descriptor = -1  # of the newest file

    def __enter__(self) -> Self:
        """Lock the temporary folder. Also raises ConfigurationError if it holds something that no rebuild put there."""
        self._folder.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._folder.__exit__(kind, error, at)

    def write(self, at: Offset, data: memoryview) -> None:
        """Write `data` at offset `at`, which is at or after the end of what was written."""
        with self._folder.told():
            while data:
                start = Offset(at - at % self._size_bytes)
                self._go_to(start)
                written = os.pwrite(self._descriptor, data[: start + self._size_bytes - at], at - start)
                at, data = Offset(at + written), data[written:]

    def finish(self, end: Offset) -> tuple[Offset, ...]:
        """Put the files that hold the log up to `end` in their place, durably. Return their first offsets."""
        with self._folder.told():
            self._go_to(Offset(end - 1 - (end - 1) % self._size_bytes))
        self._folder.finish()
        return tuple(self._starts)

    def _go_to(self, start: Offset) -> None:
        """Make the file that begins at `start` the newest one, and make those of a hole before it."""
        while not self._starts or self._starts[-1] < start:
            self._starts.append(Offset(self._starts[-1] + self._size_bytes) if self._starts else start)
            self._descriptor = self._folder.next_file(f"{self._starts[-1]:020d}")
            os.ftruncate(self._descriptor, self._size_bytes)
