"""Parse messages in a task: rows of a typed table go to one file, dead letters to another, and a report back. No JVM.

The messages come as Arrow batches of `MESSAGES`. No commit names the files until the driver has the reports of all
tasks; VACUUM removes what a kill leaves of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.data_file import DataFile
from sinks.delta.files import in_columns
from sinks.tables import EPOCH, UNFIT
from sinks.typed.columns import DELETED, PLACE, Column, MessagePlace, SeenValues, table_spec
from sinks.typed.deletes import Deletes
from sinks.typed.formats.json_fields import (
    NO_BODY,
    Fields,
    Misfit,
    NoObject,
    column_values,
    concealed,
    each_left,
    kind_of,
    rest_of,
    taken_apart,
    texts_of,
)
from sinks.typed.formats.numbers import EXACT, long_of
from sinks.typed.formats.reading import Reading
from sinks.typed.formats.times import are_in_years
from sinks.typed.readers import reader
from sinks.typed.step import guard
from sinks.typed.step.file_of_rows import FileOfRows
from sinks.typed.step.found_fields import MOST, FoundFields, free_names
from sinks.typed.step.inner_batch import Unread
from sinks.typed.step.missing_bodies import missing_body
from sinks.typed.step.places import MessagePlaces, Span, spans
from sinks.typed.step.task_reports import as_row, reported
from sources.errors import across_processes

MESSAGES: Final = pa.schema(
    [
        *PLACE,
        pa.field("record_key", pa.binary()),
        pa.field("body", pa.binary()),
        pa.field("sys_flag", pa.int32()),
        pa.field("stored_body", pa.binary()),
        pa.field("source", pa.string()),
    ]
).remove_metadata()
"""The columns of a message that a task gets. Only records of Kafka have a key, and only those of RocketMQ flags and
`stored_body`: what is there instead of a body that cannot be decompressed, as `sys_flag` says that it is. `source` is a
topic of `from`."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one task, or several together, made of their messages.

    `fractions` has the place of the first number with a fraction, by column of integers. `large` has, by column of
    doubles, the place of the first integer that would have kept a column of integers from being widened. `held` is
    where the messages are; only a look tells it.
    """

    messages: int = 0
    rows: int = 0
    files: tuple[DataFile, ...] = ()
    unfit: tuple[DataFile, ...] = ()
    seen: Mapping[str, SeenValues] = field(default_factory=dict)
    fractions: Mapping[str, MessagePlace] = field(default_factory=dict)
    large: Mapping[str, MessagePlace] = field(default_factory=dict)
    first_unfit: tuple[MessagePlace, str, str] | None = None
    sources: frozenset[str] = frozenset()
    held: tuple[Span, ...] = ()

    def and_also(self, other: Report) -> Report:
        seen = dict(self.seen)
        for name, one in other.seen.items():
            seen[name] = seen[name].and_also(one) if name in seen else one
        unfit = [one for one in (self.first_unfit, other.first_unfit) if one is not None]
        return Report(
            self.messages + other.messages,
            self.rows + other.rows,
            (*self.files, *other.files),
            (*self.unfit, *other.unfit),
            seen,
            _first(self.fractions, other.fractions),
            _first(self.large, other.large),
            min(unfit, default=None),
            self.sources | other.sources,
            (*self.held, *other.held),
        )


@dataclass(frozen=True, slots=True)
class OfStep:
    """The values of `Parsing` that differ between steps of one table.

    With `only_looks` nothing is parsed or written: the report says how many messages there are, and where.
    """

    columns: tuple[Column, ...]
    unwidened: tuple[str, ...] = ()
    generation: int = 1
    epochs: Mapping[str, int] = field(default_factory=dict)
    unread: Unread | None = None
    only_looks: bool = False

    def told(self, parsing: Parsing) -> Parsing:
        return replace(
            parsing, columns=self.columns, unwidened=self.unwidened, generation=self.generation, epochs=self.epochs,
            unread=self.unread,
        )  # fmt: skip


def _note(first: dict[str, MessagePlace], name: str, places: Iterable[MessagePlace]) -> None:
    for place in places:
        first[name] = min(place, first.get(name, place))


def _first(one: Mapping[str, MessagePlace], other: Mapping[str, MessagePlace]) -> dict[str, MessagePlace]:
    return {name: min(of[name] for of in (one, other) if name in of) for name in {**one, **other}}


@dataclass(frozen=True, slots=True)
class Parsing:
    """The task function, picklable: parses messages for the typed table `table`, whose folder is `folder`.

    `finds` says whether to report fields without a column, the first `most`; `dropped` fields are left out. Columns in
    `unwidened` stay columns of integers. `epochs` are those of the logs, by log id. Messages that are `unread`
    are dead letters.
    """

    table: str
    columns: tuple[Column, ...]
    folder: str
    unfit_folder: str
    finds: bool
    dropped: tuple[str, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    unwidened: tuple[str, ...] = ()
    reading: Reading = field(default_factory=Reading)
    generation: int = 1
    epochs: Mapping[str, int] = field(default_factory=dict)
    deletes: Deletes = field(default_factory=Deletes)
    renamed: Mapping[str, str] = field(default_factory=dict)
    most: int = MOST
    unread: Unread | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch], of_step: OfStep) -> Iterator[pa.RecordBatch]:
        with across_processes():
            report = _looked(batches) if of_step.only_looks else of_step.told(self).report(batches)
        if report.messages:
            yield as_row(report)

    def report(self, batches: Iterable[pa.RecordBatch]) -> Report:
        """Write rows and dead letters, and return the report."""
        told = self._nothing_told()
        with (
            FileOfRows(table_spec(self.table, self.columns), self.folder) as rows,
            FileOfRows(UNFIT, self.unfit_folder) as unfit,
        ):

            def written() -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    messages = with_epochs(batch, self.epochs)
                    if self.unread is not None:
                        is_unread = _is_in(messages, self.unread)
                        left_out = messages.filter(is_unread)
                        unfit.write(self._left_out(left_out, guard.WORKER_DIED, self.unread.found, told))
                        messages = messages.filter(pc.invert(is_unread))
                    for made, dead in self._each_part(messages, told):
                        unfit.write(dead)
                        if made is not None:
                            yield made

            rows.write_all(written())
            files, dead = rows.finish(), unfit.finish()
            return replace(told.report(), files=files, unfit=dead)

    def _nothing_told(self) -> Told:
        return Told(FoundFields(free_names(self.columns, self.renamed), self.most))

    def _each_part(
        self, messages: pa.RecordBatch, told: Told
    ) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch]]:
        """The rows and the dead letters of `messages`, part by part: see `guard`."""

        def work(part: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, Told]:
            of_part = self._nothing_told()  # what fails has told nothing
            return *self.rows(part, of_part), of_part

        for part, made in guard.in_sound_parts(work, messages):
            if isinstance(made, Exception):
                yield None, self._left_out(part, guard.READER_FAILED, guard.told(made), told)
            else:
                rows, dead, of_part = made
                told.take(of_part)
                yield rows, dead

    def _left_out(self, messages: pa.RecordBatch, reason: str, found: str, told: Told) -> pa.RecordBatch:
        """The dead letters of messages that are not read."""
        misfits = [Misfit(row, None, reason, found) for row in range(messages.num_rows)]
        places = MessagePlaces(messages)
        told.see_messages(messages)
        for one in misfits:
            told.found_unfit(places[one.row], one)
        return self._unfit(messages, misfits)

    def rows(self, messages: pa.RecordBatch, told: Told) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        objects, numbers, misfits = taken_apart(messages["body"].to_pylist(), reader(self.reading))
        misfits = [missing_body(one, messages) for one in misfits]
        places = MessagePlaces(messages)
        deleted = self.deletes.of(objects)
        if self.deletes.tombstones:
            tombstones, misfits = self._tombstones(messages, misfits)
            objects += tombstones.values()
            numbers += tombstones
            deleted += [True] * len(tombstones)
        self._conceal(objects)
        values: list[pa.Array] = []
        for column in self.columns:
            if column == DELETED:
                values.append(pa.array(deleted, column.type))
                continue
            raws = texts_of(objects, column)
            array, wrong = column_values(column, raws)
            values.append(array)
            if self.finds:
                wrong = self._told_numbers(column, raws, array, wrong, lambda row: places[numbers[row]], told)
            misfits += (replace(one, row=numbers[one.row]) for one in wrong)
        if self.finds:
            told.see_left(objects, numbers, places)
        rest = pa.array([rest_of(one) for one in objects], pa.string())
        schema = table_spec(self.table, self.columns).schema.remove_metadata()
        placed = messages.take(pa.array(numbers, pa.int64()))
        made = pa.RecordBatch.from_arrays([*(placed[one.name] for one in PLACE), *values, rest], schema=schema)
        if self.key:
            made, without_key = self._with_key(made, numbers)
            misfits += without_key
        told.see_messages(messages)
        told.rows += made.num_rows
        for one in misfits:
            told.found_unfit(places[one.row], one)
        return made, self._unfit(messages, misfits)

    def _tombstones(
        self, messages: pa.RecordBatch, misfits: Sequence[Misfit]
    ) -> tuple[dict[int, Fields], list[Misfit]]:
        """The misfits that delete a row, as key fields by their row in the batch, and the other misfits."""
        kinds = {one.field: one.kind for one in self.columns}
        found, others = dict[int, Fields](), list[Misfit]()
        for one in misfits:
            record_key = messages["record_key"][one.row].as_py() if one.reason == NO_BODY else None
            try:
                fields = None if record_key is None else self.deletes.tombstone(record_key, kinds)
            except NoObject as error:
                others.append(replace(one, reason=error.reason, found=f"the record's key: {error}"))
                continue
            if fields is None:
                others.append(one)
            else:
                found[one.row] = fields
        return found, others

    def _conceal(self, objects: Sequence[Fields]) -> None:
        """Remove dropped fields and mask masked ones that have no column, so that `_rest` does not show them."""
        masked = {name: mask for name, mask in self.masks.items() if name not in {one.field for one in self.columns}}
        for name in self.dropped:
            for one in objects:
                one.pop(name, None)
        for name, mask in masked.items():
            for one in objects:
                if name in one:
                    one[name] = concealed(mask, one[name])

    def _with_key(self, made: pa.RecordBatch, numbers: Sequence[int]) -> tuple[pa.RecordBatch, list[Misfit]]:
        missing = pa.nulls(made.num_rows)  # no message has had the field yet
        columns = (made[name] if name in made.schema.names else missing for name in self.key)
        has_key = reduce(pc.and_, (column.is_valid() for column in columns))
        if has_key.true_count == made.num_rows:
            return made, []
        lacks = [number for number, has in zip(numbers, has_key.to_pylist(), strict=True) if not has]
        return made.filter(has_key), [Misfit(number, None, "no_key", "null") for number in lacks]

    def _told_numbers(
        self,
        column: Column,
        raws: Sequence[msgspec.Raw],
        array: pa.Array,
        misfits: Sequence[Misfit],
        place_of: Callable[[int], MessagePlace],
        told: Told,
    ) -> list[Misfit]:
        """Note the numbers that decide whether a column of integers can be widened. Returns the other misfits."""
        if column.kind == "double" and column.mask is None:
            _note(told.large, column.name, map(place_of, _large_integers(array, raws, misfits)))
        if column.kind != "bigint" or column.name in self.unwidened:
            return list(misfits)
        fractions = {one.row for one in misfits if kind_of(raws[one.row]) == "double"}
        _note(told.fractions, column.name, map(place_of, fractions))
        return [one for one in misfits if one.row not in fractions]

    def _unfit(self, messages: pa.RecordBatch, misfits: Sequence[Misfit]) -> pa.RecordBatch:
        """The dead letters of `misfits`, without their body if the table masks or drops fields: the log has it."""
        rows = messages.take(pa.array([one.row for one in misfits], pa.int64()))
        given: dict[str, Any] = {
            "table": pa.array([self.table] * len(misfits), pa.string()),
            "generation": pa.array([self.generation] * len(misfits), pa.int32()),
            "column": pa.array([one.column for one in misfits], pa.string()),
            "reason": pa.array([one.reason for one in misfits], pa.string()),
            "found": pa.array([one.found for one in misfits], pa.string()),
        }
        hides = self.masks or self.dropped
        given["body"] = pa.nulls(len(misfits), pa.binary()) if hides else pc.coalesce(rows["body"], rows["stored_body"])
        schema = UNFIT.schema.remove_metadata()
        columns = [given[name] if name in given else rows[name] for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _large_integers(doubles: pa.Array, raws: Sequence[msgspec.Raw], misfits: Sequence[Misfit]) -> Iterator[int]:
    """The rows with integers that fit a column of integers, but would have kept it from being widened."""
    is_large = pc.fill_null(pc.greater_equal(pc.abs(doubles), EXACT), fill_value=False)
    for row in {*(one.row for one in misfits), *pc.indices_nonzero(is_large).to_pylist()}:
        value = long_of(bytes(raws[row]))
        if value is not None and abs(value) >= EXACT:
            yield row


_SHOWN: Final = 80


@dataclass(slots=True)
class Told:
    """Collects a report."""

    found: FoundFields = field(default_factory=lambda: FoundFields(free_names((), {})))
    messages: int = 0
    rows: int = 0
    fractions: dict[str, MessagePlace] = field(default_factory=dict)
    large: dict[str, MessagePlace] = field(default_factory=dict)
    first_unfit: tuple[MessagePlace, str, str] | None = None
    sources: set[str] = field(default_factory=set)

    def see_messages(self, messages: pa.RecordBatch) -> None:
        self.messages += messages.num_rows
        self.sources.update(pc.unique(messages["source"]).to_pylist())

    def report(self) -> Report:
        return Report(
            self.messages, self.rows, seen=self.found.first(), fractions=self.fractions, large=self.large,
            first_unfit=self.first_unfit, sources=frozenset(self.sources),
        )  # fmt: skip

    def take(self, other: Told) -> None:
        """Add what a part of the messages has told."""
        self.messages += other.messages
        self.sources |= other.sources
        self.rows += other.rows
        self.found.take(other.found)
        self.fractions = _first(self.fractions, other.fractions)
        self.large = _first(self.large, other.large)
        unfit = [one for one in (self.first_unfit, other.first_unfit) if one is not None]
        self.first_unfit = min(unfit, default=None)

    def see_left(self, objects: Sequence[Fields], numbers: Sequence[int], places: MessagePlaces) -> None:
        """Note the fields of `objects` that have no column; `numbers` are the objects' rows in the batch."""
        for row, name, kind in each_left(objects):
            # a later schema may have longer integers, so a column that is found has room for them
            self.found.see(name, "bigint" if kind == "int" else kind, places[numbers[row]])

    def found_unfit(self, place: MessagePlace, one: Misfit) -> None:
        first = (place, one.column or "", f"{one.reason}: {one.found[:_SHOWN]}")
        self.first_unfit = first if self.first_unfit is None else min(self.first_unfit, first)


def _is_in(messages: pa.RecordBatch, unread: Unread) -> pa.Array:
    index = pc.fill_null(messages["batch_index"], 0)
    found = pc.and_(pc.equal(messages["log_id"], unread.log_id), pc.equal(messages["offset"], unread.offset))
    for start, end in unread.read:
        found = pc.and_(found, pc.or_(pc.less(index, start), pc.greater_equal(index, end)))
    return found


def _looked(batches: Iterable[pa.RecordBatch]) -> Report:
    messages, held = spans(in_columns(batch, MESSAGES) for batch in batches)
    return Report(messages, held=held)


def with_epochs(batch: pa.RecordBatch, epochs: Mapping[str, int]) -> pa.RecordBatch:
    """Messages with a column for the epoch of their log. A time of their record that no reader has becomes null."""
    messages = in_columns(batch, MESSAGES)
    stored_at = messages["stored_at"]
    is_one = are_in_years(stored_at)
    if is_one.false_count:
        kept = pc.if_else(is_one, stored_at, pa.scalar(None, stored_at.type))
        messages = messages.set_column(messages.schema.get_field_index("stored_at"), PLACE[-1].name, kept)
    of_log = pa.array(epochs, pa.string()), pa.array(epochs.values(), EPOCH.type)
    return messages.append_column(EPOCH, of_log[1].take(pc.index_in(messages["log_id"], of_log[0])))


def reports(rows: Iterable[Any]) -> Report:
    return reduce(Report.and_also, reported(rows), Report())
