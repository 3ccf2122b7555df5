"""Remove files of a Delta log that nobody needs any more: commits, checkpoints and checksums below an old checkpoint.

Every start lists the whole folder, and so does each commit if others write too. On a local disk listing 40,000 files
takes about a second; a day of one-second commits leaves four times as many. Kernel's own clean-up, after each
checkpoint, is turned off (`sinks/warehouse.py`): it trusts every checkpoint that is listed, and leaves the checksums of
versions (``N.crc``) behind for ever.

One complete history is kept: the newest checkpoint that is older than the horizon, and everything after it. So every
version of the last hours can still be read, and a stream that follows the table may be away that long. Checksums of
versions only make the newest one quick to open: below the newest checkpoint they are removed whatever their age.

A checkpoint is trusted only if all of it was read, is on the disk, and agrees with its version's commit
(`LogFolder.is_whole`): it may be empty or cut after a power failure, or a copy from elsewhere. A value that was
overwritten and still decodes is not noticed: Delta keeps no checksum of a checkpoint. Nothing is removed below one that
is not trusted. Checkpoints of several parts, and of Delta's second kind, are neither trusted nor removed:
logtwin never writes them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sinks.delta.files import sync
from sinks.delta.log_checks import KINDS, State, actions_of, disagreement, state_of
from sinks.delta.spark_jobs import JobFacts, run_each
from sinks.storage.errors import failed_by
from sinks.storage.hadoop import remove_files
from sinks.storage.place import open_folder
from sources.errors import ReplicaError

_ROWS_AT_ONCE: Final = 1024


def what_is_wrong(checkpoint: bytes, commit: bytes) -> str | None:
    """Why `checkpoint` is not that of the version that `commit`, a JSON file of the log, made; None if it is."""
    try:
        state = _state(checkpoint)
        done = state_of(actions_of(commit))
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        return f"it cannot be read: {error}"
    return disagreement(done, state.get)


def _state(checkpoint: bytes) -> State:
    """The state in a checkpoint. Reads every column of every row, to find any that cannot be read."""
    with pq.ParquetFile(pa.BufferReader(checkpoint)) as parquet:
        names = [name for name in KINDS if name in parquet.schema_arrow.names]
        rows = (row for batch in parquet.iter_batches(_ROWS_AT_ONCE) for row in batch.select(names).to_pylist())
        return state_of(rows)


_log = logging.getLogger(__name__)

# Hadoop's own checksums of local files are hidden files beside them, .N.json.crc and .N.crc.crc. Other writers and
# older versions of logtwin leave them (`pipeline/spark/session.py`).
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
        """The table's version that the file belongs to; None if it belongs to none, or is of an unknown kind."""
        found = _VERSIONED.fullmatch(self.name)
        return int(found["version"]) if found else None


def expired(entries: Iterable[LogEntry], before: datetime, is_whole: Callable[[LogEntry], bool]) -> list[LogEntry]:
    """The entries that no version needs that was the newest at `before` or later, oldest first, so kills leave no gap.

    `is_whole` says whether a checkpoint's version can be read from it; it is called for few, the newest first.
    """
    known = [(entry.version, entry) for entry in entries if entry.version is not None]
    checkpoints = sorted(
        ((version, entry) for version, entry in known if _CHECKPOINT.fullmatch(entry.name)),
        key=lambda one: one[0],
        reverse=True,
    )
    newest = next((version for version, entry in checkpoints if is_whole(entry)), 0)
    old = (one for one in checkpoints if one[1].modified_at < before)
    floor = next((version for version, entry in old if is_whole(entry)), 0)
    return [
        entry
        for version, entry in sorted(known, key=lambda one: (one[0], one[1].name))
        if version < floor or (version < newest and _CHECKSUM.fullmatch(entry.name))
    ]


class LogFolder:
    """The ``_delta_log`` of a table. `spark` is for removing many of S3's objects at once (`remove_files`)."""

    def __init__(self, table: str, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self._table = table
        self._filesystem, inner = open_folder(table)
        self._path = f"{inner.rstrip('/')}/_delta_log"

    def entries(self) -> list[LogEntry]:
        """Every file in the folder. Raises ReplicaError."""
        try:
            found = self._filesystem.get_file_info(pafs.FileSelector(self._path))
        except OSError as error:
            raise self._failure("listed", error) from error
        return [LogEntry(one.base_name, one.size, one.mtime) for one in found if one.is_file]

    def is_whole(self, entry: LogEntry) -> bool:
        """Whether a checkpoint can be read to its end and has the state that its version's commit left.

        On a local disk it is synced first. With a session a task reads it: it names the removed files of a week, and
        the driver of a job has other things to do. Raises ReplicaError if the storage cannot be read.
        """
        if self._spark is None:
            wrong = self.doubt(entry)
        else:
            facts = JobFacts(
                problem=f"the Spark job that reads {self._path}/{entry.name} failed",
                log=None,
                hint="Nothing was removed; run it again.",
            )
            (wrong,) = run_each(self._spark, partial(_doubt_in, self._table), [entry], facts)
        if wrong is not None:
            _log.warning("%s/%s is not trusted, and nothing below it is removed: %s", self._path, entry.name, wrong)
        return wrong is None

    def doubt(self, entry: LogEntry) -> str | None:
        """Why a checkpoint is not to be trusted; None if it is. Raises ReplicaError."""
        path, commit = (f"{self._path}/{name}" for name in (entry.name, f"{entry.version:020d}.json"))
        try:
            if isinstance(self._filesystem, pafs.LocalFileSystem):
                sync(Path(path))
                sync(Path(self._path))
            return what_is_wrong(self._read(path), self._read(commit))
        except FileNotFoundError as error:
            return str(error)  # Kernel's own clean-up has removed it
        except OSError as error:
            raise self._failure("read", error) from error

    def _read(self, path: str) -> bytes:
        with self._filesystem.open_input_file(path) as file:
            return bytes(file.read())

    def remove(self, entries: Sequence[LogEntry]) -> None:
        """Delete `entries`, in their order. Raises ReplicaError."""
        try:
            remove_files(self._spark, f"{self._table.rstrip('/')}/_delta_log", [entry.name for entry in entries])
        except OSError as error:
            raise self._failure("cleaned up", error) from error

    def _failure(self, done: str, error: OSError) -> ReplicaError:
        return failed_by(error)(
            f"the Delta log {self._path} cannot be {done}",
            found=error,
            hint="Check that the table's storage can be reached and written, then run it again.",
        )


def _doubt_in(table: str, entry: LogEntry) -> str | None:
    """The work of a task."""
    return LogFolder(table).doubt(entry)
