"""Segment files of a log, made anew: a folder of them that is there whole, or not at all.

They are written into a folder beside the wanted one, ``<wanted>.rebuilding/files``, which takes its place when all of
them are whole and durable: in one rename. So whatever is killed when, the wanted folder has all the files or none.
What a kill left is removed by the next rebuild, and nothing else is: the mark beside it is made before the first file
and goes after the last, so a folder without one is another's, if there is anything in it.
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
    """Files in the making, one after the other. A context manager: left without `finish`, nothing of them is there.

    Every method raises ConfigurationError where the disk is full, or may not be written.
    """

    def __init__(self, directory: Path, own: re.Pattern[str]) -> None:
        """`directory` is empty, or not there yet: raises ConfigurationError where it is neither.

        `own` is what the names of all files and folders in it match, with the folders that they are in.
        """
        self.directory = directory.resolve()
        _check_free(self.directory)
        self._own = own
        self._folder = self.directory.with_name(f"{self.directory.name}{_UNFINISHED}")
        self._files = self._folder / _FILES
        self._lock = ExitStack()  # on the folder, as long as it is written to
        self._descriptor = -1  # of the newest file

    def __enter__(self) -> Self:
        """Raises ConfigurationError where the folder that is written to holds what no rebuild put there, too."""
        with self.told(), ExitStack() as until_locked:
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

    def next_file(self, name: str) -> int:
        """Make the file `name`, in a folder that it may name; the one before is durable. Its descriptor."""
        with self.told():
            self._close_file()
            path = self._files / name
            if path.parent != self._files:
                path.parent.mkdir(exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        return self._descriptor

    def append(self, data: bytes) -> None:
        """Put `data` behind what was written to the newest file."""
        left = memoryview(data)
        with self.told():
            while left:
                left = left[os.write(self._descriptor, left) :]

    def finish(self) -> None:
        """Put the files into their place, durable."""
        with self.told():
            self._close_file()
            for folder in self._files.iterdir():
                if folder.is_dir():
                    _sync(folder)
            _sync(self._files)
            self._files.rename(self.directory)
            _sync(self.directory.parent)

    @contextmanager
    def told(self) -> Iterator[None]:
        """What the disk refuses inside, as the operator's matter."""
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
        """Remove the folder of the files with what is in it, if it is there."""
        with suppress(FileNotFoundError):
            for left in sorted(self._files.rglob("*"), reverse=True):  # what is in a folder before the folder
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


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
