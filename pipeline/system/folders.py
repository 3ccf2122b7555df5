"""Where this process writes beside a warehouse, and who may read it: the cache, and a private folder of its own.

The private folder is for files that are worthless after its end. It holds the sockets between Spark and its Python
workers, those of the driver and of each daemon. Spark would leave them in the temporary folder, and those of a killed
driver for ever. It also holds what a job tells the planner of its stream. Each process has a folder ``<temporary
folder>/logtwin-<user>/<random>`` and holds a lock on a file in it. A folder whose lock is free belongs to a dead
process, whatever its id and its container, and is removed.

The address of a Unix domain socket has at most 108 bytes with its final zero on Linux (sun_path of unix(7)), 104 on
macOS: Spark allows no more than 61 for their folder (spark.python.unix.domain.socket.dir).
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

from sources.errors import NO_ROOM, ConfigurationError, StorageUnreachable

_OTHERS: Final = 0o077

LONGEST_FOLDER_BYTES: Final = 61
_LOCK: Final = "lock"
_ROOM_BYTES: Final = 64_000


def cache_folder() -> Path:
    """The folder for files that can be made again: ``$LOGTWIN_CACHE``, or ``logtwin`` in the user's cache folder."""
    chosen = os.environ.get("LOGTWIN_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logtwin"


def cache_file(*names: str) -> Path:
    """A file in the cache folder that can be written; it is made if it is not there.

    Raises ConfigurationError, StorageUnreachable if its disk is full.
    """
    file = cache_folder().joinpath(*names)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError as error:
        raise _unwritable(error)(
            f"the cache folder {cache_folder()} cannot be written",
            found=error.strerror,
            hint="LOGTWIN_CACHE names another one.",
        ) from error
    return file


def _unwritable(error: OSError) -> type[ConfigurationError | StorageUnreachable]:
    """The kind of error for a folder that is needed at the start: a full disk may get room, and is tried again.

    Whoever restarts jobs does not try again what is a matter of configuration.
    """
    return StorageUnreachable if error.errno in NO_ROOM else ConfigurationError


def limit_rights(warehouse: Path | None) -> None:
    """Give files and folders that this process and its children make from now on no more rights than `warehouse` has.

    So who cannot read the tables cannot read these. None, or a folder that cannot be looked at: one in an object store,
    which has no such rights; then they are the owner's alone. A folder that does not exist yet gets the rights that the
    process gives to all that it makes.
    """
    before = os.umask(_OTHERS)
    os.umask(before | _missing(warehouse))


def _missing(warehouse: Path | None) -> int:
    try:
        return _OTHERS if warehouse is None else ~warehouse.stat().st_mode & _OTHERS
    except FileNotFoundError:
        return 0
    except OSError:
        return _OTHERS


@cache
def process_folder() -> Path:
    """The folder of this process. The first call makes it, and removes the folders of dead processes.

    Raises ConfigurationError, StorageUnreachable if its disk is full.
    """
    try:
        root = _root()
        for leftover in _dead(root):
            shutil.rmtree(leftover, ignore_errors=True)
        folder, lock = _own(root)
        try:
            (folder / "probe").write_bytes(bytes(_ROOM_BYTES))  # without room the JVM would end, and not say why
            (folder / "probe").unlink()
        except OSError:
            _end(folder, lock)
            raise
    except OSError as error:
        raise _unwritable(error)(
            "the folder for temporary files cannot be written",
            expected="a folder of ours, with room",
            found=error.strerror,
            hint="TMPDIR names another one.",
        ) from error
    atexit.register(_end, folder, lock)
    return folder


def _root() -> Path:
    """The folder of all our processes, private to this user: anyone who can write there could talk to the workers."""
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
        lock.close()  # another process took it for a dead one's in between, and removed it


def _dead(root: Path) -> Iterator[Path]:
    for path in root.glob(f"*/{_LOCK}"):
        try:
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path.parent  # removed while the lock is held
        except OSError:
            continue  # its process lives, or another one removes it


def _end(folder: Path, lock: IO[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.close()
