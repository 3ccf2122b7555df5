"""Keep one row for each key: find the newest of several, and rewrite the files that have others.

A message that is older than the existing row (`newest.py`) changes nothing, so a hole that is filled late does no harm.
Rows that are older than what has emptied the table go, whenever they come.

The new rows are already in files that no commit names (`sinks/typed/step/parsing.py`). First, the table's rows that
have any of the new keys are found; each other row is the only one of its key, and stays. Then, among these and the new
ones, the newest row of each key, from keys and places alone. Last, files that have other rows, too, are rewritten
without them. These are three jobs whose tasks read Parquet themselves: to plan a query would take Spark longer than
most steps take in all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds
from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileOfRows, batches_of, discard, group_bounds, in_columns, open_parquet
from sinks.delta.spark_jobs import JobFacts, run_tasks
from sinks.storage.errors import reported_as
from sinks.tables import TableSpec
from sinks.typed.columns import PLACE, SOURCE_ORDER, Column, table_spec
from sinks.typed.state import Emptied
from sinks.typed.step.newest import are_before, incomparable, newest_of, normal_form
from sinks.typed.step.widening import Rewritten
from sinks.typed.table import TypedTable, TypedView
from sources.errors import ReplicaError, across_processes

_ROWS_AT_ONCE: Final = 16_384
_ROWS_A_FILE: Final = 1_000_000
_KEYS_A_TASK: Final = 4_000_000
"""How many rows a task compares; it holds the key and place of each."""

_FILE, _ROW = "_file", "_row"


def files_by_key(
    spark: SparkSession,
    table: TypedTable,
    view: TypedView,
    columns: Sequence[Column],
    key: Sequence[str],
    new: Sequence[DataFile],
    rewritten: Rewritten | None,
    emptied: Emptied | None,
) -> tuple[list[StoredFile], list[DataFile], list[DataFile]]:
    """Keep the newest row of each key, unless it is older than what has `emptied` the table.

    Returns files to remove, rewritten files to keep, and new files. Raises what a task raised, or ReplicaError.
    """
    spec = table_spec(table.name, columns)
    stored, kept = rewritten or (table.files(view), [])
    there = {one.path: one.statistics()["numRecords"] for one in stored} if rewritten is None else _rows_in(kept)
    is_new = emptied is not None and (view.state is None or view.state.emptied != emptied)
    files = KeyedFiles(spec, table.path, tuple(key))
    gone, written = _upserted(spark, files, there, _rows_in(new), emptied, is_new=is_new)
    discard(table.path, [one.name for one in new if one.name in gone])
    come = [*(one for one in new if one.name not in gone), *written]
    if rewritten is None:
        return [one for one in stored if one.path in gone], [], come
    return stored, [one for one in kept if one.name not in gone], come


def _rows_in(files: Sequence[DataFile]) -> dict[str, int]:
    return {one.name: one.records for one in files}


def _upserted(
    spark: SparkSession,
    files: KeyedFiles,
    there: Mapping[str, int],
    new: Mapping[str, int],
    emptied: Emptied | None,
    *,
    is_new: bool,
) -> tuple[set[str], list[DataFile]]:
    """Rewrite files so that there is one row for each key. Returns the names of those that are gone, and new files.

    `there` are the files of the table, `new` those of the step: their numbers of rows by name. If what has `emptied`
    the table `is_new`, any of its files may have rows that go.
    """
    facts = JobFacts(
        problem=f"the Spark job that brings rows of {files.spec.name} by their key failed",
        log=None,
        hint="Nothing of the step was committed; a running job does it again.",
    )
    each = {name: Rows.all(records) for name, records in {**(there if is_new else {}), **new}.items()}
    if not is_new:
        groups = [{name: there[name] for name in group} for group in _in_groups(there, _ROWS_A_FILE)]
        each = dict(run_tasks(spark, RowsWithKeys(files, new), groups, facts)) | each
    if not each:
        return set(), []
    parts = 1 + sum(one.count for one in each.values()) // _KEYS_A_TASK
    older = run_tasks(spark, OlderRows(files, each, parts, emptied), range(parts), facts)
    newest = {name: Rows.all(one.records).without(part[name] for part in older) for name, one in each.items()}
    others = {name: rows for name, rows in newest.items() if rows.count < rows.records}
    kept = _in_groups({name: rows.count for name, rows in others.items()}, _ROWS_A_FILE)
    writing = [{name: others[name] for name in group} for group in kept]
    return {*others}, run_tasks(spark, RowsWritten(files), writing, facts)


def _in_groups(files: Mapping[str, int], rows: int) -> list[list[str]]:
    """Groups of file names, in order, with about `rows` rows each."""
    groups: list[list[str]] = []
    room = 0
    for name, records in files.items():
        if room <= 0:
            groups.append([])
            room = rows
        groups[-1].append(name)
        room -= records
    return groups


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some of the `records` rows of a file, as a bit for each."""

    records: int
    bits: np.ndarray

    @classmethod
    def all(cls, records: int) -> Rows:
        return cls.of(np.ones(records, dtype=bool))

    @classmethod
    def of(cls, are_in: np.ndarray) -> Rows:
        return cls(len(are_in), np.packbits(are_in))

    @property
    def are_in(self) -> np.ndarray:
        """Whether each row is one of them."""
        return np.unpackbits(self.bits, count=self.records).astype(bool)

    @property
    def count(self) -> int:
        return int(self.are_in.sum())

    def without(self, several: Iterable[Rows]) -> Rows:
        bits = self.bits.copy()
        for one in several:
            bits &= ~one.bits
        return Rows(self.records, bits)


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """Reads data files of the table `spec` in `folder`, in tasks; picklable. Raises ReplicaError."""

    spec: TableSpec
    folder: str
    key: tuple[str, ...]

    @contextmanager
    def opened(self, name: str, records: int) -> Iterator[pq.ParquetFile]:
        """Open a file, which must have `records` rows."""
        rebuild = f"Nothing was changed. logtwin tables rebuild {self.spec.name} makes it anew from the log."
        unread = reported_as(
            f"a data file of the typed table {self.spec.name} cannot be read",
            expected=f"the file {self.folder.rstrip('/')}/{name}",
            hint=rebuild,
        )
        with unread, open_parquet(self.folder, name) as parquet:
            if parquet.metadata.num_rows != records:
                raise ReplicaError(
                    f"a data file of the typed table {self.spec.name} has another number of rows",
                    expected=f"{records} in {name}",
                    found=parquet.metadata.num_rows,
                    hint=rebuild,
                )
            yield parquet

    def batches(self, parquet: pq.ParquetFile, columns: Sequence[str], wanted: Rows) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows `wanted`; null where a column is newer than the file."""
        schema, are_wanted, at = self._schema(columns), wanted.are_in, 0
        for group, records in enumerate(_group_records(parquet)):
            in_group, at = are_wanted[at : at + records], at + records
            if not in_group.any():
                continue
            begin = 0
            for batch in batches_of(parquet, _ROWS_AT_ONCE, columns, [group]):
                in_batch, begin = in_group[begin : begin + batch.num_rows], begin + batch.num_rows
                if in_batch.any():
                    yield in_columns(batch.filter(pa.array(in_batch)), schema, self.spec.growing)

    def rows(self, parquet: pq.ParquetFile, columns: Sequence[str], wanted: Rows) -> pa.Table:
        """The same as a table, in a form in which equal values are equal bytes."""
        return normal_form(pa.Table.from_batches(self.batches(parquet, columns, wanted), self._schema(columns)))

    def _schema(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self.spec.schema.field(one) for one in columns]).remove_metadata()


def _group_records(parquet: pq.ParquetFile) -> list[int]:
    metadata = parquet.metadata
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


@dataclass(frozen=True, slots=True)
class RowsWithKeys:
    """Task function: finds the rows, of files with their numbers of rows, that have any of the keys in the `new` files.

    Row groups whose bounds of the first key column have none of its values are not read.
    """

    files: KeyedFiles
    new: Mapping[str, int]

    def __call__(self, groups: Iterable[Mapping[str, int]]) -> Iterator[tuple[str, Rows]]:
        with across_processes():
            come = pa.concat_tables(self._keys(name, records) for name, records in self.new.items())
            first = pc.unique(come[self.files.key[0]])
            for name, records in chain.from_iterable(group.items() for group in groups):
                found = self._found(name, records, come, first)
                if found.count:
                    yield name, found

    def _keys(self, name: str, records: int) -> pa.Table:
        with self.files.opened(name, records) as parquet:
            return self.files.rows(parquet, self.files.key, Rows.all(records))

    def _found(self, name: str, records: int, come: pa.Table, first: pa.Array) -> Rows:
        key, are_found = list(self.files.key), np.zeros(records, dtype=bool)
        with self.files.opened(name, records) as parquet:
            may_have = np.repeat(_may_have(parquet, key[0], first), _group_records(parquet))
            keys = self.files.rows(parquet, key, Rows.of(may_have))
        keys = keys.append_column(_ROW, pa.array(np.flatnonzero(may_have)))
        if keys.num_rows:
            are_found[keys.join(come, key, join_type="left semi", use_threads=False)[_ROW].to_numpy()] = True
        return Rows.of(are_found)


def _may_have(parquet: pq.ParquetFile, column: str, values: pa.Array) -> list[bool]:
    """Whether each row group of a file may have any of the `values`, by its bounds."""
    kind = values.type
    if not (kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_date(kind)):
        return [True] * parquet.num_row_groups
    return [
        bounds is None
        or pc.any(
            pc.and_(
                pc.greater_equal(values, pa.scalar(bounds[0], kind)), pc.less_equal(values, pa.scalar(bounds[1], kind))
            )
        ).as_py()
        for bounds in group_bounds(parquet, column)
    ]


@dataclass(frozen=True, slots=True)
class OlderRows:
    """Task function: finds the rows that are not the newest of their key.

    `each` has the rows to compare by file. Each result covers the keys of one part, a number below `parts`.
    """

    files: KeyedFiles
    each: Mapping[str, Rows]
    parts: int
    emptied: Emptied | None = None

    def __call__(self, numbers: Iterable[int]) -> Iterator[dict[str, Rows]]:
        with across_processes():
            for number in numbers:
                yield self._of_part(number)

    def _of_part(self, number: int) -> dict[str, Rows]:
        rows = pa.concat_tables(self._rows(at, name, number) for at, name in enumerate(self.each))
        self._check(rows)
        are_older = np.ones(rows.num_rows, dtype=bool)
        stay = np.arange(rows.num_rows)
        if self.emptied is not None:
            stay = stay[pc.invert(are_before(rows, self.emptied)).to_numpy()]
        are_older[stay[newest_of(rows.take(stay), self.files.key).to_numpy()]] = False
        older = rows.select([_FILE, _ROW]).filter(pa.array(are_older))
        files, found = older[_FILE].to_numpy(), older[_ROW].to_numpy()
        bits = {}
        for at, (name, one) in enumerate(self.each.items()):
            are_in = np.zeros(one.records, dtype=bool)
            are_in[found[files == at]] = True
            bits[name] = Rows.of(are_in)
        return bits

    def _check(self, rows: pa.Table) -> None:
        """Raise ReplicaError if it cannot be said which of two changes of a key is the newer one."""
        found = incomparable(rows, self.files.key, self.emptied)
        if found is not None:
            number, other = found
            log_id, offset, order = (rows[name][number].as_py() for name in ("log_id", "offset", SOURCE_ORDER.name))
            raise ReplicaError(
                f"changes of the typed table {self.files.spec.name} come from two servers, or from one that began anew",
                log=log_id,
                offset=offset,
                expected=f"a place at the source that can be compared with {other}",
                found=order,
                hint='With order = "log" in its [[tables]] it takes changes in the order of their log; then logtwin '
                f"tables rebuild {self.files.spec.name}.",
            )

    def _rows(self, at: int, name: str, part: int) -> pa.Table:
        """The keys and places of the rows to compare in one file, with the file's and the row's number."""
        places = (one.name for one in (*PLACE, SOURCE_ORDER) if one.name in self.files.spec.schema.names)
        columns, wanted = list(dict.fromkeys((*self.files.key, *places))), self.each[name]
        with self.files.opened(name, wanted.records) as parquet:
            rows = self.files.rows(parquet, columns, wanted)
        rows = rows.append_column(_FILE, pa.repeat(pa.scalar(at, pa.int32()), rows.num_rows))
        rows = rows.append_column(_ROW, pa.array(np.flatnonzero(wanted.are_in)))
        return rows if self.parts == 1 else rows.filter(_is_of_part(rows[self.files.key[0]], part, self.parts))


@dataclass(frozen=True, slots=True)
class RowsWritten:
    """Task function: writes one file with some rows of several files."""

    files: KeyedFiles

    def __call__(self, groups: Iterable[Mapping[str, Rows]]) -> Iterator[DataFile]:
        with across_processes():
            for group in groups:
                with FileOfRows(self.files.spec, self.files.folder) as file:
                    file.write_all(chain.from_iterable(self._rows(name, rows) for name, rows in group.items()))
                    yield from file.finish()

    def _rows(self, name: str, wanted: Rows) -> Iterator[pa.RecordBatch]:
        with self.files.opened(name, wanted.records) as parquet:
            yield from self.files.batches(parquet, self.files.spec.schema.names, wanted)


def _is_of_part(values: pa.ChunkedArray, part: int, parts: int) -> pa.Array:
    """Whether each value belongs to `part` of `parts`, by a checksum of its text."""
    texts = (str(one).encode() for one in values.to_pylist())
    return pa.array([zlib.crc32(one) % parts == part for one in texts], pa.bool_())
