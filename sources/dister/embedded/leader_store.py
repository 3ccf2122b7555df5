"""The files of an embedded leader: batch files to append to, whole states to replace, and a lock for the writers.

A failed write raises OSError and leaves the files as they were: no torn line stays before the next one.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sources.dister.files.layout import BatchFile, batch_path, list_batches
from sources.errors import MasterError

_LOOK_BACK_BYTES: Final = 64 * 1024


class WriterTurns:
    """Lets writers, threads and processes, take turns. The lock file says who wrote last.

    A killed writer's turn ends.
    """

    def __init__(self, path: Path) -> None:
        self._name = uuid.uuid4().hex.encode()
        self._threads = threading.Lock()
        self._file = path.open("a+b", buffering=0)

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def turn(self, look: Callable[[], None]) -> Iterator[None]:
        """Wait for the turn and take it. First call `look` if another writer wrote since the last turn."""
        with self._threads:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                if os.pread(self._file.fileno(), len(self._name), 0) != self._name:
                    look()
                    self._file.truncate(0)
                    self._file.write(self._name)
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)


class BatchWriter:
    """The batch files below one folder, open for appending. For the one whose turn it is."""

    def __init__(self, entry_log: Path) -> None:
        self._entry_log = entry_log
        self._open: tuple[int, int] | None = None  # batch number, descriptor

    def batches(self) -> tuple[BatchFile, ...]:
        return list_batches(self._entry_log)

    def append(self, number: int, data: bytes) -> None:
        """Append all of `data` to batch `number`, or nothing. Raises OSError."""
        descriptor = self._descriptor(number)
        size_bytes = os.fstat(descriptor).st_size
        try:
            _write(descriptor, data)
        except OSError:
            with suppress(OSError):  # the first error is the one to tell
                os.ftruncate(descriptor, size_bytes)
            raise

    def drop_torn_line(self, batch: BatchFile) -> None:
        """Cut off what follows the last newline: that line was never finished."""
        self.close()
        with batch.path.open("r+b") as file:
            whole_bytes = at = file.seek(0, os.SEEK_END)
            while at > 0:
                at, end = max(0, at - _LOOK_BACK_BYTES), at
                file.seek(at)
                newline = file.read(end - at).rfind(b"\n")
                whole_bytes = at + newline + 1
                if newline >= 0:
                    break
            file.truncate(whole_bytes)

    def cut(self, batch: BatchFile, lines: Iterable[bytes]) -> None:
        """Keep only `lines` of the log from `batch` on, in a new file; remove later files, the last one first.

        A kill in between leaves the log up to some later entry.
        """
        self.close()
        for later in reversed([one for one in self.batches() if one.number > batch.number]):
            later.path.unlink()
        # Made while the old file is still there, so that the new one cannot get the same inode.
        if not exchange(batch.path, lines):
            batch.path.unlink()

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _descriptor(self, number: int) -> int:
        if self._open is not None and self._open[0] == number:
            return self._open[1]
        self.close()
        path = self._entry_log / batch_path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._open = (number, descriptor)
        return descriptor


def exchange(path: Path, parts: Iterable[bytes]) -> bool:
    """Replace the file at `path` with `parts`, atomically, unless these are empty. Return whether they were not."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.writelines(parts)
        size_bytes = file.tell()
    if size_bytes:
        new.replace(path)
    else:
        new.unlink()
    return size_bytes > 0


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn an OSError into the leader's MasterError: it cannot write `what`."""
    try:
        yield
    except OSError as error:
        raise MasterError(
            f"the leader cannot write {what}",
            found=error.strerror or str(error),
            hint="It is as it was; free the disk, or check who may write there, and write again.",
        ) from error


def _write(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])
