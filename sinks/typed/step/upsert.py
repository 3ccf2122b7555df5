"""Bring rows by their key: find what becomes of those that are there, and rewrite the files that have other ones.

A table has the newest row of each key, or it has each change, with the times from and until which it stood.

A message that is older than the existing row (`newest.py`) changes nothing, so a hole that is filled late does no harm.
Rows that are older than what has emptied the table go, or end then, whenever they come.

The new rows are already in files that no commit names (`sinks/typed/step/parsing.py`). First, the table's rows that
have any of the new keys are found; no other row changes. Then, among these and the new ones, the newest row of each
key, or the end of each change, from keys and places alone. Last, files in which a row goes, or ends, are rewritten.
These are three jobs whose tasks read Parquet themselves: to plan a query would take Spark longer than most steps take
in all.
"""

from __future__ import annotations

import hashlib
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
from sinks.delta.files import FileOfRows, discard
from sinks.delta.spark_jobs import JobFacts, run_tasks
from sinks.typed.columns import DELETED, PLACE, SOURCE_ORDER, VALID_FROM, VALID_TO, Column, table_spec
from sinks.typed.state import Emptied, last_of
from sinks.typed.step.keyed_files import KeyedFiles, Rows, group_records, may_have
from sinks.typed.step.newest import are_before, incomparable, newest_of
from sinks.typed.step.validity import NEVER, Validity, validity_of
from sinks.typed.step.widening import Rewritten
from sinks.typed.table import TypedTable, TypedView
from sources.errors import ReplicaError, across_processes

_ROWS_A_FILE: Final = 1_000_000
_KEYS_A_TASK: Final = 4_000_000
"""How many rows a task compares; it holds the key and place of each."""

_FILE, _ROW = "of file", "of row"  # no column can have such a name
_OF_ROW: Final = {*(one.name for one in PLACE), VALID_TO.name}
"""The columns that changes which are equal may differ in."""


def files_by_key(
    spark: SparkSession,
    table: TypedTable,
    view: TypedView,
    columns: Sequence[Column],
    key: Sequence[str],
    new: Sequence[DataFile],
    rewritten: Rewritten | None,
    emptied: Sequence[Emptied],
) -> tuple[list[StoredFile], list[DataFile], list[DataFile]]:
    """Keep the newest row of each key, or each change with its end, after what has `emptied` the table.

    Returns files to remove, rewritten files to keep, and new files. Raises what a task raised, or ReplicaError.
    """
    spec = table_spec(table.name, columns)
    stored, kept = rewritten or (table.files(view), [])
    there = {one.path: one.statistics()["numRecords"] for one in stored} if rewritten is None else _rows_in(kept)
    is_new = len(emptied) > 0 and (view.state is None or view.state.emptied != emptied)
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
    emptied: Sequence[Emptied],
    *,
    is_new: bool,
) -> tuple[set[str], list[DataFile]]:
    """Rewrite files so that their rows are right. Returns the names of those that are gone, and new files.

    `there` are the files of the table, `new` those of the step: their numbers of rows by name. If what has `emptied`
    the table `is_new`, any of its files may have rows that go, or end.
    """
    facts = JobFacts(
        problem=f"the Spark job that brings rows of {files.spec.name} by their key failed",
        log=None,
        hint="Nothing of the step was committed; a running job does it again.",
    )
    each = {name: Rows.all(records) for name, records in {**(there if is_new else {}), **new}.items()}
    if new and not is_new:
        groups = [{name: there[name] for name in group} for group in _in_groups(there, _ROWS_A_FILE)]
        each = dict(run_tasks(spark, RowsWithKeys(files, new), groups, facts)) | each
    if not each:
        return set(), []
    parts = 1 + sum(one.count for one in each.values()) // _KEYS_A_TASK
    found = run_tasks(spark, ChangedRows(files, each, parts, tuple(emptied)), range(parts), facts)
    all_changes = {name: Changes.together([one[name] for one in found]) for name in each}
    changed = {name: one for name, one in all_changes.items() if one.left < one.gone.records or len(one.ended)}
    kept = _in_groups({name: one.left for name, one in changed.items()}, _ROWS_A_FILE)
    writing = [{name: changed[name] for name in group} for group in kept]
    return {*changed}, run_tasks(spark, RowsWritten(files), writing, facts)


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
class Changes:
    """What becomes of the rows of a file: those that go, and the numbers of those that get other ends (`Validity`)."""

    gone: Rows
    ended: np.ndarray
    ends: np.ndarray

    @classmethod
    def together(cls, parts: Sequence[Changes]) -> Changes:
        ended, ends = (np.concatenate([getattr(one, name) for one in parts]) for name in ("ended", "ends"))
        order = np.argsort(ended)
        gone = Rows.of(np.logical_or.reduce([one.gone.are_in for one in parts]))
        return cls(gone, ended[order], ends[order])

    @property
    def left(self) -> int:
        """How many rows stay."""
        return self.gone.records - self.gone.count


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
        key = list(self.files.key)
        with self.files.opened(name, records) as parquet:
            candidates = np.repeat(may_have(parquet, key[0], first), group_records(parquet))
            keys = self.files.rows(parquet, key, Rows.of(candidates))
        keys = keys.append_column(_ROW, pa.array(np.flatnonzero(candidates)))
        return Rows.at(keys.join(come, key, join_type="left semi", use_threads=False)[_ROW].to_numpy(), records)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Task function: finds the rows that are not the newest of their key, or each change's end, in each file.

    `each` has the rows to compare by file: all that have one of their keys. Each result covers the keys of one part, a
    number below `parts`.
    """

    files: KeyedFiles
    each: Mapping[str, Rows]
    parts: int
    emptied: tuple[Emptied, ...] = ()

    def __call__(self, numbers: Iterable[int]) -> Iterator[dict[str, Changes]]:
        with across_processes():
            for number in numbers:
                yield self._of_part(number)

    def _of_part(self, number: int) -> dict[str, Changes]:
        rows = pa.concat_tables(self._rows(at, name, number) for at, name in enumerate(self.each))
        self._check(rows)
        if self.files.have_history:
            return self._by_file(rows, validity_of(rows, self.files.key, self.emptied, self._digests))
        none = np.zeros(0, dtype=np.int64)
        return self._by_file(rows, Validity(self._replaced(rows), none, none))

    def _replaced(self, rows: pa.Table) -> np.ndarray:
        """The numbers of those that are not the newest of their key, or older than what has emptied the table."""
        left = np.arange(rows.num_rows)
        for one in self.emptied:
            left = left[~are_before(rows.take(left), one).to_numpy()]
        is_gone = np.ones(rows.num_rows, dtype=bool)
        is_gone[left[newest_of(rows.take(left), self.files.key).to_numpy()]] = False
        return np.flatnonzero(is_gone)

    def _by_file(self, rows: pa.Table, found: Validity) -> dict[str, Changes]:
        """What becomes of `rows`, by file."""
        gone_from, gone = _places(rows.take(found.gone))
        ended_in, ended = _places(rows.take(found.ended))
        return {
            name: Changes(
                Rows.at(gone[gone_from == at], one.records), ended[ended_in == at], found.ends[ended_in == at]
            )
            for at, (name, one) in enumerate(self.each.items())
        }

    def _digests(self, rows: pa.Table) -> list[bytes]:
        """A digest of all values of each of some rows, but for their place and end."""
        columns = [one for one in self.files.spec.schema.names if one not in _OF_ROW]
        (files, numbers), found = _places(rows), dict[tuple[int, int], bytes]()
        for at, (name, one) in enumerate(self.each.items()):
            if at not in files:
                continue
            wanted = Rows.at(numbers[files == at], one.records)
            with self.files.opened(name, one.records) as parquet:
                values = [row for batch in self.files.batches(parquet, columns, wanted) for row in batch.to_pylist()]
            for number, row in zip(np.flatnonzero(wanted.are_in).tolist(), values, strict=True):
                found[at, number] = hashlib.blake2b(repr(row).encode(), digest_size=16).digest()
        return [found[place] for place in zip(files.tolist(), numbers.tolist(), strict=True)]

    def _check(self, rows: pa.Table) -> None:
        """Raise ReplicaError if it cannot be said which of two changes of a key is the newer one."""
        found = incomparable(rows, self.files.key, next(iter(last_of(self.emptied)), None))
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
        ours = (*PLACE, SOURCE_ORDER, *((VALID_FROM, VALID_TO, DELETED) if self.files.have_history else ()))
        places = (one.name for one in ours if one.name in self.files.spec.schema.names)
        columns, wanted = list(dict.fromkeys((*self.files.key, *places))), self.each[name]
        with self.files.opened(name, wanted.records) as parquet:
            rows = self.files.rows(parquet, columns, wanted)
        rows = rows.append_column(_FILE, pa.repeat(pa.scalar(at, pa.int32()), rows.num_rows))
        rows = rows.append_column(_ROW, pa.array(np.flatnonzero(wanted.are_in)))
        return rows if self.parts == 1 else rows.filter(_is_of_part(rows[self.files.key[0]], part, self.parts))


@dataclass(frozen=True, slots=True)
class RowsWritten:
    """Task function: writes one file with the rows of several files that stay."""

    files: KeyedFiles

    def __call__(self, groups: Iterable[Mapping[str, Changes]]) -> Iterator[DataFile]:
        with across_processes():
            for group in groups:
                with FileOfRows(self.files.spec, self.files.folder) as file:
                    file.write_all(chain.from_iterable(self._rows(name, one) for name, one in group.items()))
                    yield from file.finish()

    def _rows(self, name: str, changes: Changes) -> Iterator[pa.RecordBatch]:
        records, at = changes.gone.records, 0
        left = Rows.of(~changes.gone.are_in)
        numbers = np.flatnonzero(left.are_in)
        with self.files.opened(name, records) as parquet:
            for batch in self.files.batches(parquet, self.files.spec.schema.names, left):
                in_batch, at = numbers[at : at + batch.num_rows], at + batch.num_rows
                yield _ending(batch, in_batch, changes) if len(changes.ended) else batch


def _ending(batch: pa.RecordBatch, numbers: np.ndarray, changes: Changes) -> pa.RecordBatch:
    """`batch`, rows of a file with these `numbers`, with their ends."""
    is_ended = np.isin(numbers, changes.ended)
    ends = changes.ends[np.searchsorted(changes.ended, numbers[is_ended])]
    times = pa.array(ends, pa.int64(), mask=ends == NEVER).cast(VALID_TO.type)
    at = batch.schema.get_field_index(VALID_TO.name)
    return batch.set_column(at, batch.schema.field(at), pc.replace_with_mask(batch[at], pa.array(is_ended), times))


def _places(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    return rows[_FILE].to_numpy(), rows[_ROW].to_numpy()


def _is_of_part(values: pa.ChunkedArray, part: int, parts: int) -> pa.Array:
    """Whether each value belongs to `part` of `parts`, by a checksum of its text."""
    texts = (str(one).encode() for one in values.to_pylist())
    return pa.array([zlib.crc32(one) % parts == part for one in texts], pa.bool_())
