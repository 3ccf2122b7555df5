"""Sync local files to the disk: at the end, and in parts while they are written, so that the last sync is short."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

EVERY_BYTES: Final = 4 * 1024 * 1024
"""How much has to be written before an early sync. Without early syncs, half a second of the disk's time would come
after a task's last record.
"""


def sync(path: Path) -> None:
    """Force a local file, or a folder's entries, to the disk."""
    with _opened(path) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class EarlySync:
    """Syncs what is written of the file `path`, in a thread, while more is written."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._under_way: Future[None] | None = None
        self._asked_bytes = 0

    def grown(self, size_bytes: int) -> None:
        """Note that the file has `size_bytes` now. Raises OSError if an earlier sync failed."""
        if self._under_way is not None and not self._under_way.done():
            return
        self._check()
        if size_bytes - self._asked_bytes >= EVERY_BYTES:
            self._asked_bytes = size_bytes
            self._under_way = self._thread.submit(os.fsync, self._descriptor)

    def close(self) -> None:
        """Wait for the last early sync. Idempotent. Raises OSError as `grown` does.

        To be called before the last `sync`, because the kernel reports a failure only once.
        """
        if self._descriptor < 0:
            return
        self._thread.shutdown()
        os.close(self._descriptor)
        self._descriptor = -1
        self._check()

    def _check(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
