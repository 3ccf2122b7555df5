"""The table `quarantine`: bytes of the master that are no sound records, kept as they came.

Tasks write them to files, one row for each piece of damage. The commit of the log names these files in its domain
metadata; after the commit they are added to the table (`sinks/books/follow_up_table.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.data_file import DataFile, bounds, may_hold
from sinks.delta.delta_log import StoredFile, newest
from sinks.delta.files import FileWriter, new_name, open_parquet
from sinks.storage.errors import failed_by
from sinks.storage.place import placed
from sinks.tables import LOG_ID, QUARANTINE
from sinks.values.incident import Incident
from sinks.warehouse import absolute
from sources.offsets import LogId, Offset, OffsetRange, Position

_SCHEMA = QUARANTINE.schema.remove_metadata()
_COLUMNS = [LOG_ID.name, "offset", "end", "cause", "bytes"]
_PIECES_AT_ONCE = 16  # each may be as large as a record


def quarantine_row(log_id: LogId, epoch: int, piece: Incident, raw: memoryview) -> pa.RecordBatch:
    """Make a row of the table from one piece of damage and its bytes."""
    row = {
        "log_id": str(log_id),
        "epoch": epoch,
        "offset": piece.start,
        "end": piece.end,
        "condition": piece.condition.value,
        "cause": piece.cause,
        "bytes": bytes(raw),
    }
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


def open_quarantine(folder: str, start: Offset) -> FileWriter:
    """Open a file for a task to write such rows to. The table is created later, by the first commit of a row."""
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


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A piece of the quarantine: where it was in the master's log, why it is here, and how it begins."""

    range: OffsetRange
    cause: str
    head: bytes


def quarantined(warehouse: str, log_id: LogId, wanted: OffsetRange, head_bytes: int) -> list[Quarantined]:
    """The pieces that have bytes in `wanted`, by offset, with at most `head_bytes` of each.

    Empty if there is no table. Raises ReplicaError naming the file that cannot be read.
    """
    folder = QUARANTINE.path(absolute(warehouse))
    version = newest(folder)
    files = (file for file in ({} if version is None else version.files).values() if _may_hold(file, log_id, wanted))
    found = [piece for file in files for piece in _read(folder, file.path, log_id, wanted, head_bytes)]
    return sorted(found, key=lambda piece: piece.range)


def _may_hold(file: StoredFile, log_id: LogId, wanted: OffsetRange) -> bool:
    statistics = file.statistics()
    (first, _), (_, last) = bounds(statistics, "offset"), bounds(statistics, "end")
    is_before, is_behind = last is not None and last <= wanted.start, first is not None and first >= wanted.end
    return may_hold(statistics, LOG_ID.name, str(log_id)) and not is_before and not is_behind


def _read(folder: str, name: str, log_id: LogId, wanted: OffsetRange, head_bytes: int) -> Iterator[Quarantined]:
    is_wanted = (pc.field(LOG_ID.name) == str(log_id)) & (pc.field("offset") < wanted.end)
    is_wanted &= pc.field("end") > wanted.start
    try:
        with open_parquet(folder, name) as file:
            for batch in file.iter_batches(_PIECES_AT_ONCE, columns=_COLUMNS):
                yield from _pieces(pa.Table.from_batches([batch]).filter(is_wanted), head_bytes)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise failed_by(error)(
            f"the data file {folder}/{name} cannot be read",
            log=log_id,
            found=error,
            hint="Restore the file from a copy. No record and no position depends on the quarantine.",
        ) from error


def _pieces(rows: pa.Table, head_bytes: int) -> Iterator[Quarantined]:
    heads = pc.binary_slice(rows["bytes"], 0, head_bytes).to_pylist()
    for start, end, cause, head in zip(*(rows[name].to_pylist() for name in _COLUMNS[1:4]), heads, strict=True):
        yield Quarantined(OffsetRange(start, end), cause, head)
