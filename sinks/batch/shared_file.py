"""The file that the small splits of one task share, and a stretch of records on its way there. Runs in tasks.

Of many logs most bring little at a time. A file for each would be thousands of small ones an hour, each of which takes
longer to write than all rows that are in it. So what a split has read is held until the split is sound as a whole, and
goes into the task's one file then; what grows beyond HELD_BYTES gets a file of its own at once.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.batch.coverage import failure
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name, open_parquet
from sinks.storage.errors import failed_by
from sinks.tables import LOG_ID, TableSpec
from sources.offsets import Offset

HELD_BYTES: Final = 16 * 1024 * 1024
"""What a stretch holds in memory at most, as Arrow has it, before it gets a file of its own."""


class SharedFile:
    """Made with its first rows. Use as a context manager: leaving it by an exception removes it."""

    def __init__(self, table: TableSpec, folder: str) -> None:
        self.table = table
        self.folder = folder
        self._files = ExitStack()
        self._writer: FileWriter | None = None
        self._file: Future[DataFile | None] = Future()
        self._lock = threading.Lock()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0

    def __enter__(self) -> SharedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)

    def add(self, rows: Sequence[pa.RecordBatch], first: Offset) -> Future[DataFile | None]:
        """Append all of `rows`, from any thread. The file is known when `finish` is done; it is for all that was added.

        `first` is the offset that the file is named by, if these are its first rows.
        """
        with self._lock:
            if self._writer is None:
                self._writer = self._files.enter_context(FileWriter(self.table, self.folder, new_name(first)))
            self._waiting += rows
            self._waiting_bytes += sum(batch.nbytes for batch in rows)
            self._rows += sum(batch.num_rows for batch in rows)
            if self._waiting_bytes > HELD_BYTES:
                self._write(self._writer)
        return self._file

    def finish(self) -> None:
        """Close the file and make it durable, if there is one. Raises CoverageError, which knows no log."""
        if self._writer is None:
            return
        self._write(self._writer)
        file = self._writer.finish()
        _check_records(file, self._rows, Offset(0))
        self._file.set_result(file)

    def _write(self, writer: FileWriter) -> None:
        """As one row group: one for each log would cost more than the rows."""
        if self._waiting:
            (whole,) = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
            self._waiting, self._waiting_bytes = [], 0
            writer.write(whole)


def without(table: TableSpec, warehouse: str, file: DataFile, logs: Collection[str]) -> DataFile:
    """The rows of `file` that are not of `logs`, in a file of their own; there are some. Raises ReplicaError."""
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
            f"the file {file.name} of the table {folder} cannot be written anew",
            log=", ".join(logs),
            found=error,
            hint="Nothing was committed; the batch is done again.",
        ) from error


class StretchFile:
    """Where the rows of one stretch go. `files` closes what it opens; `room` is that of `FileWriter`.

    One that is `large` from the start has a file of its own.
    """

    def __init__(
        self, shared: SharedFile, start: Offset, files: ExitStack, room: threading.Semaphore, *, large: bool
    ) -> None:
        self.table = shared.table
        self._shared = shared
        self._start = start
        self._files = files
        self._room = room
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._is_large = large
        self._rows = 0
        self._own: FileWriter | None = None
        self._finishing: Future[DataFile] | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Append `rows`, of the table's schema. Raises what writing some before has raised."""
        self._rows += rows.num_rows
        if self._own is not None:
            self._own.write(rows)
        elif rows.num_rows:
            self._held.append(rows)
            self._held_bytes += rows.nbytes
            if self._is_large or self._held_bytes > HELD_BYTES:
                self._spill()

    def end(self) -> None:
        """Nothing more comes. A file of its own is finished by and by."""
        if self._own is not None:
            self._finishing = self._own.finishing()

    def handed_over(self) -> Future[DataFile | None]:
        """The split is sound: what is held goes into the shared file now. Waits for a file of its own.

        The result is None where there were no rows. Raises CoverageError, which knows no log.
        """
        done: Future[DataFile | None] = Future()
        if self._finishing is not None:
            file = self._finishing.result()
            _check_records(file, self._rows, self._start)
            done.set_result(file)
        elif self._held:
            return self._shared.add(self._held, self._start)
        else:
            done.set_result(None)
        return done

    def _spill(self) -> None:
        file = FileWriter(self.table, self._shared.folder, new_name(self._start), self._room)
        self._own = self._files.enter_context(file)
        for rows in self._held:
            self._own.write(rows)
        self._held = []


def _check_records(file: DataFile, rows: int, start: Offset) -> None:
    if file.records != rows:
        raise failure("a file holds other records than were read", start, f"{rows} records", file.records)
