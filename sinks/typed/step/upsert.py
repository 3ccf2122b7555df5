"""Bring rows by their key: find what becomes of those that are there, and rewrite the files that have other ones.

A table has the newest row of each key, or it has each change, with the times from and until which it stood.

A message that is older than the existing row (`newest.py`) changes nothing, so a hole that is filled late does no harm.
Rows that are older than what has emptied the table go, or end then, whenever they come.

The new rows are already in files that no commit names (`sinks/typed/step/parsing.py`). First, the files of the table
that have any of the new keys are found. Then, among these and the new files, the newest row of each key, or the end of
each change of the new keys, from keys and places alone. Last, files in which a row goes, or ends, are rewritten. These
are three jobs whose tasks read Parquet themselves: to plan a query would take Spark longer than most steps take in all.
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
from sinks.delta.files import FileOfRows, batches_of, discard, in_columns, open_parquet
from sinks.delta.spark_jobs import JobFacts, run_tasks
from sinks.storage.errors import reported_as
from sinks.tables import TableSpec
from sinks.typed.columns import DELETED, PLACE, SOURCE_ORDER, VALID_FROM, VALID_TO, Column, table_spec
from sinks.typed.state import Emptied, last_of
from sinks.typed.step.newest import are_before, incomparable, newest_of, normal_form
from sinks.typed.step.validity import NEVER, Validity, validity_of
from sinks.typed.step.widening import Rewritten
from sinks.typed.table import TypedTable, TypedView
from sources.errors import ReplicaError, across_processes

_ROWS_AT_ONCE: Final = 16_384
_ROWS_A_FILE: Final = 1_000_000
_KEYS_A_TASK: Final = 4_000_000
"""How many rows a task handles; it holds the key and place of each."""

_FILE, _ROW = "_file", "_row"
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
    looking = _in_groups(there, _KEYS_A_TASK)
    touched = there if is_new else run_tasks(spark, TouchedFiles(files, tuple(new)), looking, facts)
    each = {**{name: there[name] for name in touched}, **new}
    if not each:
        return set(), []
    parts = 1 + sum(each.values()) // _KEYS_A_TASK
    looked = NewestRows(files, each, parts, tuple(emptied), frozenset(each if is_new else new))
    found = run_tasks(spark, looked, range(parts), facts)
    kept = {name: Kept.together([one[name] for one in found]) for name in each}
    others = {name: one.count for name, one in kept.items() if one.count < each[name] or len(one.ended)}
    groups = [{name: kept[name] for name in group} for group in _in_groups(others, _ROWS_A_FILE)]
    return {*others}, run_tasks(spark, RowsWritten(files), groups, facts)


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
class Kept:
    """The rows of a file that stay, a bit each, and the numbers of those that get another end; see `Validity`."""

    bits: np.ndarray
    ended: np.ndarray
    ends: np.ndarray

    @classmethod
    def together(cls, parts: Sequence[Kept]) -> Kept:
        ended, ends = (np.concatenate([getattr(one, name) for one in parts]) for name in ("ended", "ends"))
        order = np.argsort(ended)
        return cls(np.bitwise_or.reduce([one.bits for one in parts]), ended[order], ends[order])

    @property
    def count(self) -> int:
        return int(np.unpackbits(self.bits).sum())


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """Reads data files of the table `spec` in `folder`, in tasks; picklable. Raises ReplicaError."""

    spec: TableSpec
    folder: str
    key: tuple[str, ...]

    @property
    def have_history(self) -> bool:
        return VALID_TO.name in self.spec.schema.names

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
    """Task function: finds the rows that are the newest of their key, or each change's end, in each file.

    `each` has the numbers of rows by file. Each result covers the keys of one part, a number below `parts`; the bits of
    other keys are 0. Rows stay as they are unless one of their key is in the files `come`.
    """

    files: KeyedFiles
    each: Mapping[str, int]
    parts: int
    emptied: tuple[Emptied, ...] = ()
    come: frozenset[str] = frozenset()

    def __call__(self, numbers: Iterable[int]) -> Iterator[dict[str, Kept]]:
        with across_processes():
            for number in numbers:
                yield self._of_part(number)

    def _of_part(self, number: int) -> dict[str, Kept]:
        rows = pa.concat_tables(self._rows(at, name, number) for at, name in enumerate(self.each))
        come = pa.array([at for at, name in enumerate(self.each) if name in self.come], pa.int32())
        keys = rows.filter(pc.is_in(rows[_FILE], come)).select([*self.files.key])
        changed = rows.join(keys, [*self.files.key], join_type="left semi", use_threads=False)
        changed = changed.sort_by([(_FILE, "ascending"), (_ROW, "ascending")])
        self._check(changed)
        if self.files.have_history:
            return self._kept(rows, changed, validity_of(changed, self.files.key, self.emptied, self._digests))
        none = np.zeros(0, dtype=np.int64)
        return self._kept(rows, changed, Validity(self._replaced(changed), none, none))

    def _replaced(self, rows: pa.Table) -> np.ndarray:
        """The numbers of those that are not the newest of their key, or older than what has emptied the table."""
        left = np.arange(rows.num_rows)
        for one in self.emptied:
            left = left[~are_before(rows.take(left), one).to_numpy()]
        is_gone = np.ones(rows.num_rows, dtype=bool)
        is_gone[left[newest_of(rows.take(left), self.files.key).to_numpy()]] = False
        return np.flatnonzero(is_gone)

    def _kept(self, rows: pa.Table, changed: pa.Table, found: Validity) -> dict[str, Kept]:
        """What becomes of `rows` by file, if that was `found` of those that may have `changed`."""
        files, numbers = _places(rows)
        gone_from, gone = _places(changed.take(found.gone))
        ended_in, ended = _places(changed.take(found.ended))
        kept = {}
        for at, (name, records) in enumerate(self.each.items()):
            stays = np.zeros(records, dtype=bool)
            stays[numbers[files == at]] = True
            stays[gone[gone_from == at]] = False
            is_here = ended_in == at
            kept[name] = Kept(np.packbits(stays), ended[is_here], found.ends[is_here])
        return kept

    def _digests(self, rows: pa.Table) -> list[bytes]:
        """A digest of all values of each of some rows, but for their place and end."""
        names = [one for one in self.files.spec.schema.names if one not in _OF_ROW]
        (files, numbers), found = _places(rows), dict[tuple[int, int], bytes]()
        for at in np.unique(files):
            wanted, start = np.sort(numbers[files == at]), 0
            for batch in self.files.batches([*self.each][at], names):
                inside = wanted[(wanted >= start) & (wanted < start + batch.num_rows)]
                for number, row in zip(inside, batch.take(inside - start).to_pylist(), strict=True):
                    found[at, number] = hashlib.blake2b(repr(row).encode(), digest_size=16).digest()
                start += batch.num_rows
        return [found[place] for place in zip(files, numbers, strict=True)]

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
        """The keys and places of the rows in one file, with the file's and the row's number."""
        ours = (*PLACE, SOURCE_ORDER, *((VALID_FROM, VALID_TO, DELETED) if self.files.have_history else ()))
        places = (one.name for one in ours if one.name in self.files.spec.schema.names)
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
class RowsWritten:
    """Task function: writes one file with those rows of several files that stay."""

    files: KeyedFiles

    def __call__(self, groups: Iterable[Mapping[str, Kept]]) -> Iterator[DataFile]:
        with across_processes():
            for group in groups:
                with FileOfRows(self.files.spec, self.files.folder) as file:
                    file.write_all(chain.from_iterable(self._rows(name, kept) for name, kept in group.items()))
                    yield from file.finish()

    def _rows(self, name: str, kept: Kept) -> Iterator[pa.RecordBatch]:
        is_wanted, at = np.unpackbits(kept.bits).astype(bool), 0
        for batch in self.files.batches(name, self.files.spec.schema.names):
            batch = _ending(batch, at, kept) if len(kept.ended) else batch
            rows = batch.filter(pa.array(is_wanted[at : at + batch.num_rows]))
            at += batch.num_rows
            if rows.num_rows:
                yield rows


def _ending(batch: pa.RecordBatch, start: int, kept: Kept) -> pa.RecordBatch:
    """`batch`, the rows of a file from the number `start` on, with their ends."""
    first, last = np.searchsorted(kept.ended, [start, start + batch.num_rows])
    is_ended, ends = np.zeros(batch.num_rows, dtype=bool), kept.ends[first:last]
    is_ended[kept.ended[first:last] - start] = True
    times = pa.array(ends, pa.int64(), mask=ends == NEVER).cast(VALID_TO.type)
    at = batch.schema.get_field_index(VALID_TO.name)
    return batch.set_column(at, batch.schema.field(at), pc.replace_with_mask(batch[at], pa.array(is_ended), times))


def _places(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    return rows[_FILE].to_numpy(), rows[_ROW].to_numpy()


def _is_of_part(values: pa.ChunkedArray, part: int, parts: int) -> pa.Array:
    """Whether each value belongs to `part` of `parts`, by a checksum of its text."""
    texts = (str(one).encode() for one in values.to_pylist())
    return pa.array([zlib.crc32(one) % parts == part for one in texts], pa.bool_())
