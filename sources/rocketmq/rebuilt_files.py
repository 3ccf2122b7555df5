"""Segment files of a commit log, made anew out of its bytes.

They are written into a folder beside the wanted one, ``<wanted>.rebuilding/files``, which takes its place when all of
them are whole and durable: in one rename. So whatever is killed when, the wanted folder has all the files or none.
What a kill left is removed by the next rebuild, and nothing else is: the mark beside it is made before the first file
and goes after the last, so a folder without one is another's, if there is anything in it.

Sizes and names are as brokers want them (`segment_files`): one size for all, each named after its first offset, which
is a multiple of that size. What is not written is zeros, and takes no space on the disk: the rest of the last file,
and holes.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.errors import ConfigurationError, CorruptRecord
from sources.master import BLANK
from sources.offsets import Offset

DEFAULT_FILE_SIZE_BYTES: Final = 1024 * 1024 * 1024
"""mappedFileSizeCommitLog, where nobody set it."""
_UNFINISHED: Final = ".rebuilding"
_MARK: Final = "made-by-logtwin-rebuild"
_FILES: Final = "files"
_SHOWN: Final = 5
_SEGMENT: Final = re.compile(r"\d{20}")


def file_size_bytes(stretches: Iterable[tuple[Offset, Iterator[Offset]]]) -> int | None:
    """How large the files of a log are, by the blanks in it; None where they do not tell.

    `stretches` are where parts of the log without holes start, and the ends of the blanks in each. A file ends in a
    blank, so two that follow each other are one file apart, and the first is so from the log's first file.
    """
    for start, blank_ends in stretches:
        first, second = next(blank_ends, None), next(blank_ends, None)
        edges = [edge for edge in (second, first, start) if edge is not None]
        for end, before in pairwise(edges):
            if end % (end - before) == 0:
                return end - before
    return None


def check_file_ends(records: pa.RecordBatch, size_bytes: int) -> None:
    """Make sure that of consecutive `records` the blanks, and nothing else, end files. Raises CorruptRecord."""
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
    """Files in the making, written in order. A context manager: left without `finish`, nothing of them is there.

    Every method raises ConfigurationError where the disk is full, or may not be written.
    """

    def __init__(self, directory: Path, size_bytes: int) -> None:
        """`directory` is empty, or not there yet. Raises ConfigurationError where it is neither."""
        self._directory = directory.resolve()
        _check_free(self._directory)
        self._folder = self._directory.with_name(f"{self._directory.name}{_UNFINISHED}")
        self._files = self._folder / _FILES
        self._size_bytes = size_bytes
        self._starts: list[Offset] = []
        self._lock = ExitStack()  # on the folder, as long as it is written to
        self._descriptor = -1  # of the newest file

    def __enter__(self) -> Self:
        """Raises ConfigurationError where the folder that is written to holds what no rebuild put there, too."""
        with self._told(), ExitStack() as until_locked:
            self._folder.mkdir(parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY)
            until_locked.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check_own()
            (self._folder / _MARK).touch()
            _sync(self._folder)
            self._empty()
            self._files.mkdir()
            self._lock = until_locked.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close_file()
        with suppress(OSError):  # by somebody's file among them; what is left is told to who writes here next
            self._empty()
            if [path.name for path in self._folder.iterdir()] == [_MARK]:
                (self._folder / _MARK).unlink()
                self._folder.rmdir()
        self._lock.close()

    def _check_own(self) -> None:
        there = {path.name for path in self._folder.iterdir()}
        others = there - {_MARK, _FILES} if _MARK in there else there
        if _MARK in there and _FILES in there:
            others |= {path.name for path in self._files.iterdir() if not _SEGMENT.fullmatch(path.name)}
        if others:
            raise ConfigurationError(
                f"the segment files cannot be written to {self._directory} by way of {self._folder}",
                expected="nothing there, or what a rebuild that was killed has left",
                found=f"what another put there: {', '.join(sorted(others)[:_SHOWN])}",
                hint="Nothing of it was touched. Move it away, or name another directory with --to.",
            )

    def _empty(self) -> None:
        """Remove the folder of the files with what is in it, if it is there."""
        with suppress(FileNotFoundError):
            for left in self._files.iterdir():
                left.unlink()
            self._files.rmdir()

    def write(self, at: Offset, data: memoryview) -> None:
        """Put `data` at offset `at`, which is at or after the end of what was written."""
        with self._told():
            while data:
                start = Offset(at - at % self._size_bytes)
                self._go_to(start)
                written = os.pwrite(self._descriptor, data[: start + self._size_bytes - at], at - start)
                at, data = Offset(at + written), data[written:]

    def finish(self, end: Offset) -> tuple[Offset, ...]:
        """Put the files that hold the log up to `end` into their place, durable. Returns their first offsets."""
        with self._told():
            self._go_to(Offset(end - 1 - (end - 1) % self._size_bytes))
            self._close_file()
            _sync(self._files)
            self._files.rename(self._directory)
            _sync(self._directory.parent)
        return tuple(self._starts)

    def _go_to(self, start: Offset) -> None:
        """Make the file that begins at `start` the newest one, and those of a hole before it."""
        while not self._starts or self._starts[-1] < start:
            self._close_file()
            self._starts.append(Offset(self._starts[-1] + self._size_bytes) if self._starts else start)
            self._descriptor = os.open(self._files / f"{self._starts[-1]:020d}", os.O_WRONLY | os.O_CREAT, 0o644)
            os.ftruncate(self._descriptor, self._size_bytes)

    def _close_file(self) -> None:
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"the segment files cannot be written to {self._directory}",
                expected=f"room for the whole log, by way of {self._folder}, and no other rebuild there",
                found=error.strerror,
            ) from error


def _check_free(directory: Path) -> None:
    is_there = directory.exists()
    if not is_there or (directory.is_dir() and not any(directory.iterdir()) and not directory.is_mount()):
        return
    raise ConfigurationError(
        f"the segment files cannot be put into {directory}",
        expected="a directory that is empty, or not there yet",
        found="the root of a file system" if directory.is_dir() and directory.is_mount() else "something there",
        hint="Name another with --to; nothing that is there is overwritten.",
    )


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
