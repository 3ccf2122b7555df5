"""Rebuilt segment files of a log: a folder of them that is there as a whole or not at all.

They are written to a folder beside the wanted one, ``<wanted>.rebuilding/files``. When all of them are whole and
durable, one rename puts that folder in its place. So after a kill at any moment, the wanted folder has all the files or
none. The next rebuild removes what a killed one left, and nothing else: a mark beside the files is made before the
first file and removed after the last, so a non-empty folder without a mark belongs to somebody else.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sources.errors import ConfigurationError

_UNFINISHED: Final = ".rebuilding"
_MARK: Final = "made-by-logtwin-rebuild"
_FILES: Final = "files"
_SHOWN: Final = 5


class RebuiltFolder:
    """A context manager for files that are written one after the other. Unless `finish` is called, none of them stays.

    Every method raises ConfigurationError if the disk is full, or may not be written.
    """

    def __init__(self, directory: Path, own: re.Pattern[str]) -> None:
        """Prepare to write `directory`, which must be empty or missing; otherwise raises ConfigurationError.

        `own` matches the names of all files and folders in it, relative to it.
        """
        self.directory = directory.resolve()
        _check_free(self.directory)
        self._own = own
        self._folder = self.directory.with_name(f"{self.directory.name}{_UNFINISHED}")
        self._files = self._folder / _FILES
        self._lock = ExitStack()  # the lock on the folder while it is written
        self._descriptor = -1  # of the newest file

    def __enter__(self) -> Self:
        """Lock the temporary folder. Also raises ConfigurationError if it holds something that no rebuild put there."""
        with self.told(), ExitStack() as until_locked:
            self._folder.mkdir(parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY)
            until_locked.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check_own()
            (self._folder / _MARK).touch()
            sync_folder(self._folder)
            self._empty()
            self._files.mkdir()
            self._lock = until_locked.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close_file()
        with suppress(OSError):  # somebody's file is among them; the next rebuild here reports what is left
            self._empty()
            if [path.name for path in self._folder.iterdir()] == [_MARK]:
                (self._folder / _MARK).unlink()
                self._folder.rmdir()
        self._lock.close()

    def next_file(self, name: str) -> int:
        """Make the file `name`, which may include a folder, and return its descriptor; the one before is durable."""
        with self.told():
            self._close_file()
            path = self._files / name
            if path.parent != self._files:
                path.parent.mkdir(exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        return self._descriptor

    def append(self, data: bytes) -> None:
        left = memoryview(data)
        with self.told():
            while left:
                left = left[os.write(self._descriptor, left) :]

    def finish(self) -> None:
        """Put the files in their place, durably."""
        with self.told():
            self._close_file()
            for folder in self._files.iterdir():
                if folder.is_dir():
                    sync_folder(folder)
            sync_folder(self._files)
            self._files.rename(self.directory)
            sync_folder(self.directory.parent)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn what the disk refuses inside into an error for the operator."""
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"the segment files cannot be written to {self.directory}",
                expected=f"room for the whole log, by way of {self._folder}, and no other rebuild there",
                found=error.strerror,
            ) from error

    def _check_own(self) -> None:
        there = {path.name for path in self._folder.iterdir()}
        others = there - {_MARK, _FILES} if _MARK in there else there
        if _MARK in there and _FILES in there:
            names = {path.relative_to(self._files).as_posix() for path in self._files.rglob("*")}
            others |= {name for name in names if not self._own.fullmatch(name)}
        if others:
            raise ConfigurationError(
                f"the segment files cannot be written to {self.directory} by way of {self._folder}",
                expected="nothing there, or what a rebuild that was killed has left",
                found=f"what another put there: {', '.join(sorted(others)[:_SHOWN])}",
                hint="Nothing of it was touched. Move it away, or name another directory with --to.",
            )

    def _empty(self) -> None:
        """Remove the folder of the files with its contents, if it is there."""
        with suppress(FileNotFoundError):
            for left in sorted(self._files.rglob("*"), reverse=True):  # contents before their folder
                if left.is_dir() and not left.is_symlink():
                    left.rmdir()
                else:
                    left.unlink()
            self._files.rmdir()

    def _close_file(self) -> None:
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
