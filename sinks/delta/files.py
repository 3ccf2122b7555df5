"""Read and write the Parquet files of a Delta table, with statistics. Runs in tasks, too; pyarrow only, no JVM.

A file is written straight into the table's folder under a name nobody can guess. No reader sees it until a commit
names it, and VACUUM removes a file that no commit names. On a local disk the file and its folder are synced before it
is reported, because the commit that names it is acknowledged to the master.

A thread encodes and compresses a batch, without Python's lock, while the caller makes the next one. The caller decides
how many batches may wait for that, and so take memory: one, unless several files share more.

Physical types are Delta's: the table's Arrow schema as it stands (timestamp[us, UTC], string, binary, list, map).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sinks.delta.data_file import DataFile, Statistics
from sinks.storage.place import open_folder, placed
from sinks.tables import TableSpec
from sources.offsets import Offset

EVERY_BYTES: Final = 4 * 1024 * 1024
"""How much has to be written before an early sync. Without early syncs, half a second of the disk's time would come
after a task's last record.
"""


def sync(path: Path) -> None:
    """Force a local file, or a folder's entries, to the disk."""
    with _opened(path) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class EarlySync:
    """Syncs what is written of the file `path`, in a thread, while more is written."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._under_way: Future[None] | None = None
        self._asked_bytes = 0

    def grown(self, size_bytes: int) -> None:
        """Note that the file has `size_bytes` now. Raises OSError if an earlier sync failed."""
        if self._under_way is not None and not self._under_way.done():
            return
        self._check()
        if size_bytes - self._asked_bytes >= EVERY_BYTES:
            self._asked_bytes = size_bytes
            self._under_way = self._thread.submit(os.fsync, self._descriptor)

    def close(self) -> None:
        """Wait for the last early sync. Idempotent. Raises OSError as `grown` does.

        To be called before the last `sync`, because the kernel reports a failure only once.
        """
        if self._descriptor < 0:
            return
        self._thread.shutdown()
        os.close(self._descriptor)
        self._descriptor = -1
        self._check()

    def _check(self) -> None:
        if self._under_way is not None:
            self._under_way.result()


# Columns with few distinct values, which a dictionary makes tiny. Bodies, unique keys and the values of properties, of
# which the unique key is one, would only overflow it: without a dictionary they are written in two thirds of the time,
# and are smaller.
DICTIONARY_COLUMNS = (
    "log_id",
    "epoch",
    "kind",
    "topic",
    "queue_id",
    "partition",
    "leader_epoch",
    "timestamp_type",
    "headers.list.element.key",
    "tags",
    "magic",
    "flag",
    "sys_flag",
    "born_host",
    "store_host",
    "reconsume_times",
    "properties.key_value.key",
    "origin",
)
# Columns with ascending values: differences take a few bits each.
DELTA_COLUMNS = ("offset", "queue_offset", "store_timestamp", "born_timestamp", "timestamp", "start", "end")
ZSTD_LEVEL = 1
_READ_WHOLE_BYTES = 1 << 20
_ROW_GROUP_BYTES = 16 << 20  # of Arrow columns: what a reader holds at once
_INT96_UNIT = "us"  # Spark may have written timestamps as INT96


def open_parquet(folder: str, name: str) -> pq.ParquetFile:
    """Open a data file of the table in `folder`; the caller closes it.

    Raises OSError, ValueError or ArrowException if it cannot be read.
    """
    filesystem, inner = open_folder(f"{folder.rstrip('/')}/{name}")
    if isinstance(filesystem, pafs.LocalFileSystem):
        return pq.ParquetFile(inner, filesystem=filesystem, coerce_int96_timestamp_unit=_INT96_UNIT)
    source = filesystem.open_input_file(inner)
    if source.size() <= _READ_WHOLE_BYTES:  # one request instead of one for its end and one for its columns
        with source:
            source = pa.BufferReader(source.read_buffer())
    return pq.ParquetFile(source, coerce_int96_timestamp_unit=_INT96_UNIT)  # closed with its last reference


def dataset_of(folder: str, names: Iterable[str], schema: pa.Schema) -> ds.Dataset:
    """Data files of the table in `folder` as one dataset. Raises OSError; reading it raises that or ArrowException."""
    filesystem, inner = open_folder(folder)
    paths = [f"{inner.rstrip('/')}/{name}" for name in names]
    parquet = ds.ParquetFileFormat(coerce_int96_timestamp_unit=_INT96_UNIT)
    return ds.dataset(paths, schema=schema.remove_metadata(), format=parquet, filesystem=filesystem)


def batches_of(
    parquet: pq.ParquetFile, rows: int, columns: Sequence[str], groups: Iterable[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of a data file, in batches of at most `rows` rows; one row group at a time is in memory.

    `groups` are the numbers of the row groups to read, by default all.
    """
    for number in range(parquet.num_row_groups) if groups is None else groups:
        yield from parquet.iter_batches(rows, row_groups=[number], columns=list(columns))


def column_chunks(parquet: pq.ParquetFile, column: str) -> list[pq.ColumnChunkMetaData]:
    """What a file says of a column without parts, in each row group. A part ``b`` of a column ``a`` is not ``a.b``."""
    leaf = [one.name == one.path == column for one in parquet.schema].index(True)
    metadata = parquet.metadata
    return [metadata.row_group(number).column(leaf) for number in range(metadata.num_row_groups)]


def group_bounds(parquet: pq.ParquetFile, column: str) -> list[tuple[Any, Any] | None]:
    """The least and the greatest value of a column in each row group; None if the file does not say."""
    found = (one.statistics for one in column_chunks(parquet, column))
    return [None if one is None or not one.has_min_max else (one.min, one.max) for one in found]


def new_name(start: Offset) -> str:
    """A file name that no other attempt of the same task will take; the offset in it is for people."""
    return f"part-{start:020d}-{uuid.uuid4()}.zstd.parquet"


class FileWriter:
    """Writes one data file. Use as a context manager: leaving it by an exception removes the file.

    `room` limits the batches that wait to be written, here and in other files that share it; by default to one.
    """

    def __init__(self, table: TableSpec, folder: str, name: str, room: threading.Semaphore | None = None) -> None:
        place = placed(folder)
        self._filesystem, inner = place.open()
        self._path = f"{inner.rstrip('/')}/{name}"
        self._name = name
        self._statistics = Statistics(table.statistics)
        self._sink = self._filesystem.open_output_stream(self._path)
        options = parquet_options(table.schema, table.dictionaries)
        try:
            self._parquet = pq.ParquetWriter(self._sink, table.schema.remove_metadata(), **options)
        except OSError:  # it begins with four bytes, and a full disk does not even take those
            self._remove(self._sink)
            raise
        self._early_sync = None if place.local is None else EarlySync(Path(self._path))
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._room = threading.Semaphore(1) if room is None else room
        self._under_way: Future[None] | None = None

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown()
        if kind is not None:
            self._remove(self._parquet, self._sink, self._early_sync)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append `batch`, of the table's schema, as one row group, in the background.

        Raises the error of an earlier batch.
        """
        self._room.acquire()
        before = self._under_way
        self._under_way = self._thread.submit(self._write, batch, before)
        self._under_way.add_done_callback(lambda _: self._room.release())
        if before is not None and before.done():
            before.result()

    def _write(self, batch: pa.RecordBatch, before: Future[None] | None) -> None:
        if before is not None:
            before.result()  # raises if the batch before failed: nothing may follow it then
        self._statistics.add(batch)
        self._parquet.write_batch(batch, row_group_size=max(1, batch.num_rows))
        if self._early_sync is not None:
            self._early_sync.grown(self._sink.tell())

    def finish(self) -> DataFile:
        """Close the file and make it durable. Raises as `write` does."""
        return self.finishing().result()

    def finishing(self) -> Future[DataFile]:
        """Like `finish`, but in the background, behind the batches that still wait."""
        return self._thread.submit(self._finish, self._under_way)

    def _finish(self, before: Future[None] | None) -> DataFile:
        if before is not None:
            before.result()
        self._parquet.close()
        size_bytes = self._sink.tell()
        self._sink.close()
        if self._early_sync is not None:
            self._early_sync.close()
            sync(Path(self._path))
            sync(Path(self._path).parent)
        return DataFile(
            self._name, size_bytes, int(time.time() * 1000), self._statistics.records, self._statistics.as_json()
        )

    def _remove(self, *opened: Any) -> None:
        # The disk may be full: the error that matters is being raised already.
        for one in opened:
            with suppress(OSError):
                if one is not None:
                    one.close()
        with suppress(OSError):
            self._filesystem.delete_file(self._path)


class FileOfRows:
    """A file of the table `spec`, whose rows have an offset, in `folder`. Use as a context manager, as `FileWriter`.

    It is created with its first row: most tasks of typed tables have no dead letters, and some no rows.
    """

    def __init__(self, spec: TableSpec, folder: str) -> None:
        self._spec = spec
        self._folder = folder
        self._writer: FileWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, at)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._writer is None:
            name = new_name(Offset(batch["offset"][0].as_py()))
            self._writer = FileWriter(self._spec, self._folder, name).__enter__()
        self._writer.write(batch)

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append `batches` in row groups of a reasonable size."""
        for group in row_groups(batches):
            self.write(group)

    def finish(self) -> tuple[DataFile, ...]:
        """Finish the file, and return it if there is one."""
        return () if self._writer is None else (self._writer.finish(),)


def parquet_options(schema: pa.Schema, dictionaries: Sequence[str] | None = None) -> dict[str, object]:
    """The options of `pq.ParquetWriter` for a file of a table with this schema."""
    names = set(schema.names)
    columns = [name for name in dictionaries or DICTIONARY_COLUMNS if name.partition(".")[0] in names]
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": columns,
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in DELTA_COLUMNS if name in names},
        # nobody asks for minima and maxima of bodies
        "write_statistics": [
            name
            for name in schema.names
            if not pa.types.is_nested(schema.field(name).type) and not pa.types.is_binary(schema.field(name).type)
        ],
        "store_schema": False,
    }


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge and cut the rows into batches of a size that is worth a row group."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= _ROW_GROUP_BYTES:
            yield pa.concat_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_batches(held)


def in_columns(batch: pa.RecordBatch, schema: pa.Schema, growing: Collection[str] = ()) -> pa.RecordBatch:
    """`batch` in the columns of `schema`. Columns in `growing` are null if the file is older than the column.

    Raises KeyError for any other missing column, ArrowException if a value does not fit.
    """
    lacks = [field for field in schema if field.name in growing and field.name not in batch.schema.names]
    for field in lacks:
        batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays([batch.column(field.name).cast(field.type) for field in schema], schema=schema)


def discard(folder: str, names: Iterable[str]) -> None:
    """Remove files that no commit names or ever will. A file that cannot be removed is left to VACUUM."""
    filesystem, inner = open_folder(folder)
    for name in names:
        with suppress(OSError):
            filesystem.delete_file(f"{inner.rstrip('/')}/{name}")
