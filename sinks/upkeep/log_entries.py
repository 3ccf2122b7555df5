"""Files of a Delta log that nobody needs any more: commits, checkpoints and checksums below an old checkpoint.

Every start lists the whole folder, and each commit where others write too. On a local disk a second of that is some
40,000 files: a day of one-second commits leaves four times as many. Kernel's own clean-up, after each checkpoint, goes
by `delta.logRetentionDuration`, and leaves the checksums of versions (``N.crc``) behind for ever.

What stays is one whole history: the newest checkpoint that is older than the horizon, and everything after it. So every
version of the last hours can still be read, and a stream that follows the table may be away that long. Checksums of
versions only make the newest one quick to open: below the newest checkpoint they go whatever their age.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow.fs as pafs

from sinks.place import open_folder
from sinks.storage_errors import failed_by
from sources.errors import ReplicaError

# Hadoop's own checksums of local files are hidden files beside them, .N.json.crc and .N.crc.crc. Others write them, and
# so did we (`pipeline/session.py`).
_VERSIONED = re.compile(r"\.?(?P<version>\d{20})\.(json|crc|checkpoint\.parquet)(\.crc)?")
_CHECKSUM = re.compile(r"\.?\d{20}\.crc(\.crc)?")
_CHECKPOINT = re.compile(r"(?P<version>\d{20})\.checkpoint\.parquet")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A file of ``_delta_log``."""

    name: str
    size_bytes: int
    modified_at: datetime

    @property
    def version(self) -> int | None:
        """Of the table; None of what belongs to no single version, or is not of a kind that this knows."""
        found = _VERSIONED.fullmatch(self.name)
        return int(found["version"]) if found else None


def expired(entries: Iterable[LogEntry], before: datetime) -> list[LogEntry]:
    """What no version needs that was still the newest at `before`; the oldest first, so that a kill leaves no gap."""
    known = [(entry.version, entry) for entry in entries if entry.version is not None]
    checkpoints = [(version, entry) for version, entry in known if _CHECKPOINT.fullmatch(entry.name)]
    newest = max((version for version, _ in checkpoints), default=0)
    floor = max((version for version, entry in checkpoints if entry.modified_at < before), default=0)
    return [
        entry
        for version, entry in sorted(known, key=lambda one: (one[0], one[1].name))
        if version < floor or (version < newest and _CHECKSUM.fullmatch(entry.name))
    ]


class LogFolder:
    """The ``_delta_log`` of a table."""

    def __init__(self, table: str) -> None:
        self._filesystem, inner = open_folder(table)
        self._path = f"{inner.rstrip('/')}/_delta_log"

    def entries(self) -> list[LogEntry]:
        """Every file in it. Raises ReplicaError."""
        try:
            found = self._filesystem.get_file_info(pafs.FileSelector(self._path))
        except OSError as error:
            raise self._failure("listed", error) from error
        return [LogEntry(one.base_name, one.size, one.mtime) for one in found if one.is_file]

    def remove(self, entries: Sequence[LogEntry]) -> None:
        """Delete `entries`, in their order. Raises ReplicaError."""
        for entry in entries:
            try:
                self._filesystem.delete_file(f"{self._path}/{entry.name}")
            except FileNotFoundError:
                continue  # Kernel's own clean-up was faster
            except OSError as error:
                raise self._failure("cleaned up", error) from error

    def _failure(self, done: str, error: OSError) -> ReplicaError:
        return failed_by(error)(
            f"the Delta log {self._path} cannot be {done}",
            found=error,
            hint="Check that the table's storage can be reached and written, then run it again.",
        )
