"""The folder of this process, gone with it: for what concerns nobody else, and is worth nothing afterwards.

There are the sockets between Spark and its Python workers, the driver's own and those of each daemon that forks some.
Spark would leave them in the temporary folder, those of a driver that is killed for ever. And there is what a job and
the planner of its stream tell each other. Each process has a folder, ``<temporary folder>/logtwin-<user>/<random>``,
and holds a lock on a file in it: whoever finds one whose lock is free knows that its process is dead, whatever it was
called and in whichever container, and removes it.

The address of a Unix domain socket has 108 bytes with the zero at its end on Linux (sun_path of unix(7)), 104 on macOS:
Spark takes no folder of more than 61 for them (spark.python.unix.domain.socket.dir).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, Final

LONGEST_FOLDER_BYTES: Final = 61
_LOCK: Final = "lock"


@cache
def process_folder() -> Path:
    """The folder of this process, made at the first call, when what dead ones left is removed as well."""
    root = _root()
    for leftover in _dead(root):
        shutil.rmtree(leftover, ignore_errors=True)
    folder, lock = _own(root)
    atexit.register(_end, folder, lock)
    return folder


def _root() -> Path:
    """Of this user alone: who may write there could speak to the workers."""
    base = Path(tempfile.gettempdir())
    if len(os.fsencode(base / f"logtwin-{os.getuid()}" / "12345678")) > LONGEST_FOLDER_BYTES:
        base = Path("/tmp")  # noqa: S108 - the folder below it is checked
    root = base / f"logtwin-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if root.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        return Path(tempfile.mkdtemp(prefix="logtwin-", dir=base))
    return root


def _own(root: Path) -> tuple[Path, IO[str]]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix="", dir=root))
        lock = (folder / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock.fileno()).st_nlink:
            return folder, lock
        lock.close()  # another start came in between, and took it for a dead one's


def _dead(root: Path) -> Iterator[Path]:
    for path in root.glob(f"*/{_LOCK}"):
        try:
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path.parent  # removed while the lock is held
        except OSError:
            continue  # it lives, or another start was faster


def _end(folder: Path, lock: IO[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.close()
