"""The table `quarantine`: bytes of the master that are no sound records, kept as they came.

Tasks write them to files, one row for each piece of damage. The commit of the log names these files in its domain
metadata; after the commit they are added to the table (`sinks/books/follow_up_table.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.storage.place import placed
from sinks.tables import QUARANTINE
from sources.errors import LogtwinError
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange, Position

_SCHEMA = QUARANTINE.schema.remove_metadata()


def cause_of(error: LogtwinError) -> str:
    """The text of `error` with what was expected and found, but without log, offset and hint."""
    return str(LogtwinError(error.problem, expected=error.expected, found=error.found))


class Piece(Protocol):
    """A piece of damage, as a task reports it."""

    @property
    def range(self) -> OffsetRange: ...
    @property
    def condition(self) -> Condition: ...
    @property
    def cause(self) -> str: ...


def quarantine_row(log_id: LogId, epoch: int, piece: Piece, raw: memoryview) -> pa.RecordBatch:
    """One piece of damage and its bytes as a row of the table."""
    row = {
        "log_id": str(log_id),
        "epoch": epoch,
        "offset": piece.range.start,
        "end": piece.range.end,
        "condition": piece.condition.value,
        "cause": piece.cause,
        "bytes": bytes(raw),
    }
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


def open_quarantine(folder: str, start: Offset) -> FileWriter:
    """A file for a task to write such rows to. The table is created later, with the first row that is committed."""
    local = placed(folder).local
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
    return FileWriter(QUARANTINE, folder, new_name(start))


class Quarantine:
    """The table `quarantine`, created with its first row. Driver only."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table = FollowingTable(spark, QUARANTINE, path)

    def append(self, position: Position, files: Sequence[DataFile]) -> bool:
        """Add the files of the commit that led to `position`, unless they are there. Returns whether it added them."""
        if not files:
            return False
        self._table.ensure()
        app_id = f"logtwin/quarantine/{position.log_id}@{position.epoch}"
        is_added = self._table.append(app_id, position.offset, lambda: files)
        self._table.run_hooks()
        return is_added
