"""Keep one row for each key: find the newest of several, and rewrite the files that have others.

A message that is older than the existing row (`newest.py`) changes nothing, so a hole that is filled late does no harm.
Rows that are older than what has emptied the table go, whenever they come.

The new rows are already in files that no commit names (`sinks/typed/step/parsing.py`). First, the files of the table
that have any of the new keys are found. Then, among these and the new files, the newest row of each key, from keys and
places alone. Last, files that have other rows, too, are rewritten without them. These are three jobs whose tasks read
Parquet themselves: to plan a query would take Spark longer than most steps take in all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileOfRows, batches_of, discard, in_columns, open_parquet
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
"""How many rows a task handles; it holds the key and place of each."""

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
    looking = _in_groups(there, _KEYS_A_TASK)
    touched = there if is_new else run_tasks(spark, TouchedFiles(files, tuple(new)), looking, facts)
    each = {**{name: there[name] for name in touched}, **new}
    if not each:
        return set(), []
    parts = 1 + sum(each.values()) // _KEYS_A_TASK
    found = run_tasks(spark, NewestRows(files, each, parts, emptied), range(parts), facts)
    newest = {name: np.logical_or.reduce([np.unpackbits(one[name]) for one in found])[: each[name]] for name in each}
    others = {name: int(rows.sum()) for name, rows in newest.items() if not rows.all()}
    groups = [{name: np.packbits(newest[name]) for name in group} for group in _in_groups(others, _ROWS_A_FILE)]
    return {*others}, run_tasks(spark, NewestWritten(files), groups, facts)


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


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """Reads data files of the table `spec` in `folder`, in tasks; picklable. Raises ReplicaError."""

    spec: TableSpec
    folder: str
    key: tuple[str, ...]

    def batches(self, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some of the table's columns of one file; those that are newer than the file are null."""
        schema = pa.schema([self.spec.schema.field(one) for one in columns]).remove_metadata()
        unread = reported_as(
            f"a data file of the typed table {self.spec.name} cannot be read",
            expected=f"the file {self.folder.rstrip('/')}/{name}",
            hint=f"Nothing was changed. logtwin tables rebuild {self.spec.name} makes it anew from the log.",
        )
        with unread, open_parquet(self.folder, name) as parquet:
            for batch in batches_of(parquet, _ROWS_AT_ONCE, columns):
                yield in_columns(batch, schema, self.spec.growing)

    def keys(self, names: Iterable[str]) -> pa.Table:
        """The keys of all rows, in a form in which equal keys are equal bytes."""
        schema = pa.schema([self.spec.schema.field(one) for one in self.key]).remove_metadata()
        batches = chain.from_iterable(self.batches(name, self.key) for name in names)
        return normal_form(pa.Table.from_batches(batches, schema))


@dataclass(frozen=True, slots=True)
class TouchedFiles:
    """Task function: yields the files that have any of the keys in the `new` files."""

    files: KeyedFiles
    new: tuple[str, ...]

    def __call__(self, groups: Iterable[Sequence[str]]) -> Iterator[str]:
        with across_processes():
            come = self.files.keys(self.new)
            for name in chain.from_iterable(groups):
                there = self.files.keys([name])
                if there.join(come, list(self.files.key), join_type="left semi", use_threads=False).num_rows:
                    yield name


@dataclass(frozen=True, slots=True)
class NewestRows:
    """Task function: finds the rows that are the newest of their key, as a bit for each row of each file.

    `each` has the numbers of rows by file. Each result covers the keys of one part, a number below `parts`; the bits of
    other keys are 0.
    """

    files: KeyedFiles
    each: Mapping[str, int]
    parts: int
    emptied: Emptied | None = None

    def __call__(self, numbers: Iterable[int]) -> Iterator[dict[str, np.ndarray]]:
        with across_processes():
            for number in numbers:
                yield self._of_part(number)

    def _of_part(self, number: int) -> dict[str, np.ndarray]:
        rows = pa.concat_tables(self._rows(at, name, number) for at, name in enumerate(self.each))
        self._check(rows)
        if self.emptied is not None:
            rows = rows.filter(pc.invert(are_before(rows, self.emptied)))
        newest = rows.select([_FILE, _ROW]).take(newest_of(rows, self.files.key))
        files, found = newest[_FILE].to_numpy(), newest[_ROW].to_numpy()
        bits = {}
        for at, (name, records) in enumerate(self.each.items()):
            is_newest = np.zeros(records, dtype=bool)
            is_newest[found[files == at]] = True
            bits[name] = np.packbits(is_newest)
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
        """The keys and places of the rows in one file, with the file's and the row's number."""
        places = (one.name for one in (*PLACE, SOURCE_ORDER) if one.name in self.files.spec.schema.names)
        columns = list(dict.fromkeys((*self.files.key, *places)))
        schema = pa.schema([self.files.spec.schema.field(one) for one in columns]).remove_metadata()
        rows = normal_form(pa.Table.from_batches(self.files.batches(name, columns), schema))
        if rows.num_rows != self.each[name]:
            raise ReplicaError(
                f"a data file of the typed table {self.files.spec.name} has another number of rows",
                expected=f"{self.each[name]} in {name}",
                found=rows.num_rows,
                hint=f"Nothing was changed. logtwin tables rebuild {self.files.spec.name} makes it anew from the log.",
            )
        rows = rows.append_column(_FILE, pa.repeat(pa.scalar(at, pa.int32()), rows.num_rows))
        rows = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        return rows if self.parts == 1 else rows.filter(_is_of_part(rows[self.files.key[0]], part, self.parts))


@dataclass(frozen=True, slots=True)
class NewestWritten:
    """Task function: writes one file with those rows of several files whose bit is set."""

    files: KeyedFiles

    def __call__(self, groups: Iterable[Mapping[str, np.ndarray]]) -> Iterator[DataFile]:
        with across_processes():
            for group in groups:
                with FileOfRows(self.files.spec, self.files.folder) as file:
                    file.write_all(chain.from_iterable(self._rows(name, bits) for name, bits in group.items()))
                    yield from file.finish()

    def _rows(self, name: str, bits: np.ndarray) -> Iterator[pa.RecordBatch]:
        is_wanted, at = np.unpackbits(bits).astype(bool), 0
        for batch in self.files.batches(name, self.files.spec.schema.names):
            rows = batch.filter(pa.array(is_wanted[at : at + batch.num_rows]))
            at += batch.num_rows
            if rows.num_rows:
                yield rows


def _is_of_part(values: pa.ChunkedArray, part: int, parts: int) -> pa.Array:
    """Whether each value belongs to `part` of `parts`, by a checksum of its text."""
    texts = (str(one).encode() for one in values.to_pylist())
    return pa.array([zlib.crc32(one) % parts == part for one in texts], pa.bool_())
