"""The layout of a leader's log: batch files, each with the ids of one batch.

::

    dister.entry.log/<number // 100>/<number>         number = id // 10^9, both in plain decimal

A file is made with its first entry, so only the existing files tell how long the log is. Numbers are consecutive:
dister's own reader takes the first missing file for the end of the log, so one missing between two others loses its
content and everything after it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final

from sources.dister.entries import IDS_PER_FILE, MAX_ID
from sources.errors import ConfigurationError, MissingSegment
from sources.offsets import Offset

ENTRY_LOG: Final = "dister.entry.log"
"""The folder of the log in a leader's data folder."""

_FILES_PER_FOLDER: Final = 100
_LAST = MAX_ID // IDS_PER_FILE
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class BatchFile:
    """One batch file."""

    number: int
    path: Path

    @property
    def first_id(self) -> int:
        return self.number * IDS_PER_FILE


def batch_number(entry_id: int) -> int:
    return entry_id // IDS_PER_FILE


def batch_path(number: int) -> PurePosixPath:
    """Return the path of a batch's file below the folder of the log."""
    return PurePosixPath(str(number // _FILES_PER_FOLDER), str(number))


def list_batches(entry_log: Path) -> tuple[BatchFile, ...]:
    """Return the batch files below the folder `entry_log`, by number; none if there is no such folder yet.

    Files whose name does not fit their folder are ignored. Raises ConfigurationError if one of the folders cannot be
    read.
    """
    found = [batch for folder in _numbered(entry_log) if folder.is_dir() for batch in _batches_in(folder)]
    return tuple(sorted(found, key=lambda batch: batch.number))


def are_joined(batches: Sequence[BatchFile]) -> bool:
    """Whether no file is missing between two of `batches`."""
    return all(after.number == before.number + 1 for before, after in pairwise(batches))


def missing_between(before: BatchFile, after: BatchFile) -> MissingSegment:
    """Return the error that the file behind `before` is missing, though there is a later one, `after`."""
    missing = before.path.parent.parent / batch_path(before.number + 1)
    return MissingSegment(
        f"batch file {missing} is missing",
        offset=Offset((before.number + 1) * IDS_PER_FILE),
        expected=f"a file for each batch up to {after.number}",
        found=f"{after.path} next",
        hint="Restore the file from a copy of the leader's log; dister itself reads no further than this.",
    )


def _batches_in(folder: os.DirEntry[str]) -> Iterator[BatchFile]:
    for entry in _numbered(Path(folder.path)):
        number = int(entry.name)
        if number // _FILES_PER_FOLDER == int(folder.name) and number <= _LAST and entry.is_file():
            yield BatchFile(number, Path(entry.path))


def _numbered(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if _NUMBER.fullmatch(entry.name)]
    except FileNotFoundError:
        return []  # not made yet, or removed since it was listed
    except OSError as error:
        raise ConfigurationError(
            "a folder of batch files cannot be read",
            expected=f"a folder at {folder}",
            found=error.strerror,
            hint="Check `path`: it must name the folder that holds dister.entry.log.",
        ) from error
