"""The commit log's files: named by the offset of their first byte, all of one size, zero-filled from creation.

Bytes go in with `pwrite` and not through a memory map: on a full disk a write then fails with an error that the
producer is told, where a map would end the process. Files are sparse, so a new one costs no space.

Invariants: file `i` starts at `first + i * size`; no read and no write crosses a file end.
"""

from __future__ import annotations

import os
from pathlib import Path

from sources.errors import SegmentError
from sources.offsets import Offset

NAME_DIGITS = 20


class LogFiles:
    """The files of one directory, open. Raises SegmentError where they do not make one log."""

    def __init__(self, directory: Path, file_size_bytes: int) -> None:
        """`file_size_bytes` is for an empty directory: files that are there say themselves how large they are."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._descriptors: list[int] = []
        paths = _log_paths(directory)
        self.size_bytes = paths[0].stat().st_size if paths else file_size_bytes
        self.first = Offset(int(paths[0].name) if paths else 0)
        for path in paths:
            self._open_existing(path)

    def __len__(self) -> int:
        return len(self._descriptors)

    @property
    def end(self) -> Offset:
        """The first byte that has no file yet."""
        return self.start_of(len(self))

    def start_of(self, index: int) -> Offset:
        """Offset of the first byte of file `index`."""
        return Offset(self.first + index * self.size_bytes)

    def left_in_file(self, offset: Offset) -> int:
        """Bytes from `offset` to the end of its file."""
        return self.size_bytes - (offset - self.first) % self.size_bytes

    def path_of(self, offset: Offset) -> Path:
        """The file that `offset` lies in."""
        start = offset - (offset - self.first) % self.size_bytes
        return self._directory / f"{start:0{NAME_DIGITS}d}"

    def create_next(self) -> None:
        """Add a zero-filled file after the last one; durable when this returns."""
        descriptor = os.open(self.path_of(self.end), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.ftruncate(descriptor, self.size_bytes)
            os.fsync(descriptor)
            self._sync_directory()
        except OSError:
            os.close(descriptor)
            self.path_of(self.end).unlink()  # the next attempt would find it in its way
            raise
        self._descriptors.append(descriptor)

    def read(self, offset: Offset, size_bytes: int) -> bytes:
        """Bytes from `offset` on, at most to the end of its file."""
        index, at = divmod(offset - self.first, self.size_bytes)
        return os.pread(self._descriptors[index], min(size_bytes, self.size_bytes - at), at)

    def write(self, offset: Offset, data: bytes | memoryview) -> None:
        """Put all of `data` at `offset`. Raises OSError; what was written until then is no part of the log."""
        index, at = divmod(offset - self.first, self.size_bytes)
        with memoryview(data) as rest:
            while rest:
                written = os.pwrite(self._descriptors[index], rest, at)
                at += written
                rest = rest[written:]

    def sync(self, offset: Offset) -> None:
        """Make what was written to the file of `offset` durable. May be called from another thread."""
        os.fdatasync(self._descriptors[(offset - self.first) // self.size_bytes])

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _open_existing(self, path: Path) -> None:
        size = path.stat().st_size
        if int(path.name) != self.end or size != self.size_bytes:
            raise SegmentError(
                "the files of the commit log do not join",
                log=self._directory,
                offset=self.end,
                expected=f"{self.path_of(self.end).name} of {self.size_bytes} bytes",
                found=f"{path.name} of {size} bytes",
                hint="Put the missing file back, or start on an empty store.",
            )
        self._descriptors.append(os.open(path, os.O_RDWR))

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _log_paths(directory: Path) -> list[Path]:
    """The log's files in order. An empty last file is what a crash left of a creation: it is removed, as a broker does."""
    paths = sorted(path for path in directory.iterdir() if path.name.isdigit() and len(path.name) == NAME_DIGITS)
    if paths and paths[-1].stat().st_size == 0:
        paths.pop().unlink()
    return paths
