"""The bytes of one batch file, as long as it was when it was opened, and its lines from any byte on.

They are read, never mapped: if somebody shortens a mapped file, the process ends. If a leader removes the file and
writes it again, whoever has it open keeps the old one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final, Self

from sources.dister.files.layout import BatchFile
from sources.dister.format.lines import Line, split_lines
from sources.errors import MasterSilent

_FIRST_BLOCK_BYTES: Final = 4 * 1024
_BLOCK_BYTES: Final = 256 * 1024
_CHANGED = "The leader may be writing its log anew: it is read again."


class BatchBytes:
    """An open batch file; a context manager that closes it. Raises MasterSilent if it cannot be read."""

    def __init__(self, batch: BatchFile) -> None:
        self.batch = batch
        self._file = _opened(batch)
        self.size = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def lines(self, at: int, stop: int | None = None) -> Iterator[Line]:
        """Yield the lines that begin in ``[at, stop)``, at most to the end of the file.

        Blocks grow, so looking at one line reads little.
        """
        stop = self.size if stop is None else stop
        lines = split_lines(self.batch, max(at - 1, 0), self._blocks(max(at - 1, 0)))
        for line in lines:
            if line.at >= stop:
                return
            if line.at >= at:
                yield line

    def line_number(self, at: int) -> int:
        """Return the number, from 1 on, of the line that begins with byte `at`. Reads everything before it."""
        return 1 + sum(1 for line in self.lines(0, at))

    def _blocks(self, at: int) -> Iterator[bytes]:
        length = _FIRST_BLOCK_BYTES
        while at < self.size:
            try:
                block = os.pread(self._file.fileno(), min(length, self.size - at), at)
            except OSError as error:
                raise _unreadable(self.batch, error) from error
            if not block:
                raise MasterSilent(
                    f"batch file {self.batch.path} lost bytes while it was read",
                    expected=f"{self.size} bytes",
                    found=f"{at} bytes",
                    hint=_CHANGED,
                )
            yield block
            at, length = at + len(block), min(2 * length, _BLOCK_BYTES)


def _opened(batch: BatchFile) -> BinaryIO:
    try:
        return batch.path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise MasterSilent(
            f"batch file {batch.path} has gone while the log was read",
            expected="a file that was there a moment ago",
            found="none",
            hint=_CHANGED,
        ) from error
    except OSError as error:
        raise _unreadable(batch, error) from error


def _unreadable(batch: BatchFile, error: OSError) -> MasterSilent:
    return MasterSilent(
        f"batch file {batch.path} cannot be read",
        expected="a file that this user may read",
        found=error.strerror,
        hint="It is tried again. Check the rights of the file, and the disk.",
    )
