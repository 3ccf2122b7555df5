"""The commit log's files, open for writing, all of one size and each named after the offset of its first byte.

Bytes are written with `pwrite` and not through a memory map: on a full disk a write then fails with an error that the
producer is told, whereas a map would end the process. Files are sparse, so a new one costs no space.

Invariants: file `i` starts at `first + i * size_bytes`; no read and no write crosses a file end.
"""

from __future__ import annotations

import os
from pathlib import Path

from sources.offsets import Offset
from sources.rocketmq.files.segment_files import Segment, check_joined, list_segments


class LogFiles:
    """The files of one directory. Raises SegmentError if they do not make one log."""

    def __init__(self, directory: Path, file_size_bytes: int) -> None:
        """Open the files. `file_size_bytes` is only for an empty directory: existing files keep their size."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._segments = list(list_segments(directory)) if _has_log(directory) else []
        check_joined(self._segments)
        self.size_bytes = self._segments[0].size if self._segments else file_size_bytes
        self.first = self._segments[0].start if self._segments else Offset(0)
        self._descriptors = [os.open(segment.path, os.O_RDWR) for segment in self._segments]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def end(self) -> Offset:
        """The first byte that has no file yet."""
        return Offset(self.first + len(self._segments) * self.size_bytes)

    def file_start(self, offset: Offset) -> Offset:
        """Return the first byte of the file that contains `offset`."""
        return Offset(offset - (offset - self.first) % self.size_bytes)

    def left_in_file(self, offset: Offset) -> int:
        """Return the number of bytes from `offset` to the end of its file."""
        return self.file_start(offset) + self.size_bytes - offset

    def create_next(self) -> None:
        """Add a zero-filled file after the last one; it is durable when this returns. Raises OSError."""
        start = self.end
        path = self.directory / f"{start:020d}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, self.size_bytes)
            os.fsync(descriptor)
            _sync_directory(self.directory)
        except OSError:
            os.close(descriptor)
            raise
        self._segments.append(Segment(path, start, self.size_bytes))
        self._descriptors.append(descriptor)

    def read(self, offset: Offset, size_bytes: int) -> bytes:
        """Read bytes from `offset` on, at most to the end of its file."""
        index, at = divmod(offset - self.first, self.size_bytes)
        return os.pread(self._descriptors[index], min(size_bytes, self.size_bytes - at), at)

    def write(self, offset: Offset, data: bytes) -> None:
        """Write all of `data` at `offset`. After an OSError, what was written until then is not part of the log."""
        index, at = divmod(offset - self.first, self.size_bytes)
        written = os.pwrite(self._descriptors[index], data, at)
        while written < len(data):
            written += os.pwrite(self._descriptors[index], data[written:], at + written)

    def clear(self, offset: Offset) -> None:
        """Fill with zeros from `offset` to the end of its file; durable when this returns."""
        index, at = divmod(offset - self.first, self.size_bytes)
        os.ftruncate(self._descriptors[index], at)
        os.ftruncate(self._descriptors[index], self.size_bytes)
        os.fsync(self._descriptors[index])

    def sync(self, offset: Offset) -> None:
        """Make what was written to the file of `offset` durable. May be called from another thread."""
        os.fdatasync(self._descriptors[(offset - self.first) // self.size_bytes])

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def _has_log(directory: Path) -> bool:
    """Whether any file has a byte in it; a crash may leave an empty one, which does not count."""
    return any(path.stat().st_size for path in directory.iterdir() if path.name.isdigit() and path.is_file())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
