"""The file that the small splits of one task share, and a stretch of records on its way there. Runs in tasks.

If there are many logs, most bring little at a time. A file for each would be thousands of small files an hour, each of
which takes longer to create than to fill. So the rows of a split are held in memory until the whole split is sound, and
then go into the task's one file. A stretch that grows beyond HELD_BYTES gets a file of its own at once.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.batch.coverage import failure
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name, open_parquet
from sinks.storage.errors import failed_by
from sinks.tables import LOG_ID, TableSpec, with_identities, with_identity
from sources.offsets import LogId, Offset

HELD_BYTES: Final = 16 * 1024 * 1024
"""The Arrow memory that a stretch may hold before it gets a file of its own."""


@dataclass(slots=True)
class HeldRows:
    """Rows of one log, still without its identity, that wait in memory; `bytes` is what they take there."""

    log_id: LogId
    epoch: int
    records: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    bytes: int = 0

    def add(self, records: pa.RecordBatch) -> None:
        self.records.append(records)
        self.count += records.num_rows
        self.bytes += records.nbytes


class SharedFile:
    """The file that several splits share, created with its first rows. Use as a context manager: leaving it by an
    exception removes the file.
    """

    def __init__(self, table: TableSpec, folder: str) -> None:
        self.table = table
        self.folder = folder
        self._files = ExitStack()
        self._writer: FileWriter | None = None
        self._file: Future[DataFile | None] = Future()
        self._lock = threading.Lock()
        self._waiting: list[HeldRows] = []
        self._waiting_bytes = 0
        self._rows = 0

    def __enter__(self) -> SharedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)

    def add(self, held: HeldRows, first: Offset) -> Future[DataFile | None]:
        """Append all rows of `held`, from any thread. The result is the file, which all share; `finish` sets it.

        `first` is the offset in the file's name, if these are its first rows.
        """
        with self._lock:
            if self._writer is None:
                self._writer = self._files.enter_context(FileWriter(self.table, self.folder, new_name(first)))
            self._waiting.append(held)
            self._waiting_bytes += held.bytes
            self._rows += held.count
            if self._waiting_bytes > HELD_BYTES:
                self._write(self._writer)
        return self._file

    def finish(self) -> None:
        """Close the file and make it durable, if there is one. Raises CoverageError, which names no log."""
        if self._writer is None:
            return
        self._write(self._writer)
        file = self._writer.finish()
        _check_records(file, self._rows, Offset(0))
        self._file.set_result(file)

    def _write(self, writer: FileWriter) -> None:
        """Write the waiting rows as one row group: one for each log would cost more than the rows."""
        if self._waiting:
            records = [batch for held in self._waiting for batch in held.records]
            (whole,) = pa.Table.from_batches(records).combine_chunks().to_batches()
            owners = [(held.log_id, held.epoch) for held in self._waiting]
            counts = [held.count for held in self._waiting]
            self._waiting, self._waiting_bytes = [], 0
            writer.write(with_identities(self.table, owners, counts, whole))


def without(table: TableSpec, warehouse: str, file: DataFile, logs: Collection[str]) -> DataFile:
    """Write the rows of `file` that do not belong to `logs`, at least one, to a new file. Raises ReplicaError."""
    folder = table.path(warehouse)
    try:
        with open_parquet(folder, file.name) as parquet:
            rows = parquet.read().cast(table.schema.remove_metadata())
        rest = rows.filter(pc.invert(pc.is_in(rows[LOG_ID.name], pa.array(logs, pa.string()))))
        with FileWriter(table, folder, new_name(Offset(rest["offset"][0].as_py()))) as writer:
            for batch in rest.combine_chunks().to_batches():
                writer.write(batch)
            return writer.finish()
    except (OSError, pa.ArrowException) as error:
        raise failed_by(error)(
            f"the file {file.name} of the table {folder} cannot be rewritten",
            log=", ".join(logs),
            found=error,
            hint="Nothing was committed; the batch is done again.",
        ) from error


class StretchFile:
    """Where the rows of one stretch go: into the shared file, or into a file of its own if it is `large` or grows.

    `files` closes the file that it opens; `room` is that of `FileWriter`.
    """

    def __init__(
        self, shared: SharedFile, rows: HeldRows, start: Offset, files: ExitStack, room: threading.Semaphore, *,
        large: bool,
    ) -> None:  # fmt: skip
        """`rows` names their log and history; it holds none yet."""
        self.table = shared.table
        self._shared = shared
        self._start = start
        self._files = files
        self._room = room
        self._held = rows
        self._is_large = large
        self._rows = 0
        self._own: FileWriter | None = None
        self._finishing: Future[DataFile] | None = None

    def write(self, records: pa.RecordBatch) -> None:
        """Append `records` of the log. Raises the error of an earlier write that failed in the background."""
        self._rows += records.num_rows
        if self._own is not None:
            self._own.write(self._identified(records))
        elif records.num_rows:
            self._held.add(records)
            if self._is_large or self._held.bytes > HELD_BYTES:
                self._spill()

    def end(self) -> None:
        """End the stretch. If it has a file of its own, that is finished in the background."""
        if self._own is not None:
            self._finishing = self._own.finishing()

    def handed_over(self) -> Future[DataFile | None]:
        """Once the split is sound, put the held rows into the shared file, or wait until the stretch's own is complete.

        The result is None if there were no rows. Raises CoverageError, which names no log.
        """
        done: Future[DataFile | None] = Future()
        if self._finishing is not None:
            file = self._finishing.result()
            _check_records(file, self._rows, self._start)
            done.set_result(file)
        elif self._held.count:
            held, self._held = self._held, HeldRows(self._held.log_id, self._held.epoch)
            return self._shared.add(held, self._start)
        else:
            done.set_result(None)
        return done

    def _spill(self) -> None:
        file = FileWriter(self.table, self._shared.folder, new_name(self._start), self._room)
        self._own = self._files.enter_context(file)
        held, self._held.records = self._held.records, []
        for records in held:
            self._own.write(self._identified(records))

    def _identified(self, records: pa.RecordBatch) -> pa.RecordBatch:
        return with_identity(self.table, self._held.log_id, self._held.epoch, records)


def _check_records(file: DataFile, rows: int, start: Offset) -> None:
    if file.records != rows:
        raise failure("a file holds other records than were read", start, f"{rows} records", file.records)
