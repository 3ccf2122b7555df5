"""Parse messages in a task: rows of a typed table go to one file, dead letters to another, and a report back. No JVM.

The messages come as Arrow batches of `MESSAGES`. No commit names the files until the driver has the reports of all
tasks; VACUUM removes what a kill leaves of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.files import FileOfRows, in_columns
from sinks.tables import EPOCH, UNFIT
from sinks.typed.columns import (
    DELETED,
    OF_CHANGES,
    PLACE,
    SOURCE_ORDER,
    VALID_FROM,
    VALID_TO,
    Column,
    MessagePlace,
    column_name,
    table_spec,
)
from sinks.typed.definition import CHANGES, Definition, Reading
from sinks.typed.formats.changes import Change
from sinks.typed.formats.json_fields import (
    NO_BODY,
    DescribedFields,
    Fields,
    Misfit,
    NoObject,
    Reader,
    kind_of,
    kind_with_times,
    rest_of,
    taken_apart,
)
from sinks.typed.formats.nested_values import column_of
from sinks.typed.formats.scalars import EXACT, are_in_years, long_of
from sinks.typed.kinds import MOST_CHARACTERS, is_nested, joined_kind
from sinks.typed.readers import reader
from sinks.typed.source_tables import add_of_record
from sinks.typed.state import Emptied
from sinks.typed.step import guard
from sinks.typed.step.report import FoundFields, MessagePlaces, Report, Told, as_row, free_names, looked
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


_NOT_DECOMPRESSED: Final = "not_decompressed"
"""The reason of a misfit whose body is not what its sys_flag says; its dead letter has the body as it is stored."""

Said: TypeAlias = tuple[Mapping[str, str], list[int]]
"""Kinds by field, and the rows that say so."""
Indexes = tuple[int, int]
"""From an index in an inner batch up to another."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A record of which only the messages in `read` are read; the others are dead letters, which say `found`."""

    log_id: str
    offset: int
    read: tuple[Indexes, ...]
    found: str


@dataclass(frozen=True, slots=True)
class OfStep:
    """What differs between steps of one table: its columns and generation, and the epochs of its logs, by log id.

    Columns in `unwidened` stay columns of integers. Messages that are `unread` are dead letters. With `only_looks`
    nothing is parsed or written: the report says how many messages there are, and where.
    """

    columns: tuple[Column, ...] = ()
    unwidened: tuple[str, ...] = ()
    generation: int = 1
    epochs: Mapping[str, int] = field(default_factory=dict)
    unread: Unread | None = None
    only_looks: bool = False


@dataclass(frozen=True, slots=True)
class Parsing:
    """The task function, picklable: parses messages for the typed table `wanted`, whose folder is `folder`."""

    wanted: Definition
    folder: str
    unfit_folder: str
    step: OfStep = field(default_factory=OfStep)

    @property
    def finds(self) -> bool:
        """Whether to report fields without a column."""
        return self.wanted.schema is None

    def __call__(self, batches: Iterable[pa.RecordBatch], of_step: OfStep) -> Iterator[pa.RecordBatch]:
        with across_processes():
            if of_step.only_looks:
                report = looked(in_columns(batch, MESSAGES) for batch in batches)
            else:
                report = replace(self, step=of_step).report(batches)
        if report.messages:
            yield as_row(report)

    def report(self, batches: Iterable[pa.RecordBatch]) -> Report:
        """Write rows and dead letters, and return the report."""
        told, unread = self._nothing_told(), self.step.unread
        with (
            FileOfRows(table_spec(self.wanted.name, self.step.columns), self.folder) as rows,
            FileOfRows(UNFIT, self.unfit_folder) as unfit,
        ):

            def written() -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    messages = with_epochs(batch, self.step.epochs)
                    if unread is not None:
                        is_unread = _is_in(messages, unread)
                        unfit.write(self._left_out(messages.filter(is_unread), guard.WORKER_DIED, unread.found, told))
                        messages = messages.filter(pc.invert(is_unread))
                    for made, dead in self._each_part(messages, told):
                        unfit.write(dead)
                        if made is not None:
                            yield made

            rows.write_all(written())
            files, dead = rows.finish(), unfit.finish()
            return replace(told.report, files=files, unfit=dead)

    def _nothing_told(self) -> Told:
        return Told(FoundFields(free_names(self.step.columns, self.wanted.renamed), self.wanted.max_columns))

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
        told.see_messages(messages)
        told.see_unfit(misfits, MessagePlaces(messages))
        return self._unfit(messages, misfits)

    def rows(self, messages: pa.RecordBatch, told: Told) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        objects, numbers, misfits = taken_apart(messages["body"].to_pylist(), reader(self.wanted.reading))
        misfits = [
            _missing_body(one, messages)
            for one in misfits
            if not (self.wanted.passes_tombstones and one.reason == NO_BODY)
        ]
        if self.wanted.reading.finds_tables:
            _add_of_records(objects, numbers, messages)
        places, columns = MessagePlaces(messages), self.step.columns
        objects, numbers = _without_emptying(objects, numbers, messages, told)
        deleted = self.wanted.deletes(objects)
        if self.wanted.tombstones:
            tombstones, misfits = self._tombstones(messages, misfits)
            objects += tombstones.values()
            numbers += tombstones
            deleted += [True] * len(tombstones)
        hidden = self.wanted.hidden
        hidden.conceal(objects, {one.field for one in self.step.columns})
        said = self._said_kinds(objects) if self.finds else []
        placed = messages.take(pa.array(numbers, pa.int64()))
        values: list[pa.Array] = []
        for column in columns:
            ours = _of_change(column, objects, deleted, placed["stored_at"])
            if ours is not None:
                values.append(ours)
                continue
            raws, array, wrong = column_of(objects, column)
            wrong = hidden.of_misfits(column, wrong)
            values.append(array)
            if self.finds:
                wider = _said_wider(column, said, raws, lambda row: places[numbers[row]])
                wrong = self._told_numbers(column, raws, array, wrong, lambda row: places[numbers[row]], told, wider)
            misfits += (replace(one, row=numbers[one.row]) for one in wrong)
        misfits += self._untold(objects, numbers)
        if self.finds:
            told.see_left(objects, numbers, places, found_kind=self.wanted.found_kind)
        rest = pa.array([rest_of(one) for one in objects], pa.string())
        schema = table_spec(self.wanted.name, columns).schema.remove_metadata()
        made = pa.RecordBatch.from_arrays([*(placed[one.name] for one in PLACE), *values, rest], schema=schema)
        if self.wanted.is_keyed:
            made, without_key = self._with_key(made, numbers)
            misfits += without_key
        told.see_messages(messages, made.num_rows)
        told.see_unfit(misfits, places)
        return made, self._unfit(messages, misfits)

    def _said_kinds(self, objects: Sequence[Fields]) -> list[Said]:
        """What events, or schemas with parts, say of their fields. Bodies of one schema share it."""
        of_changes = self.wanted.reading.format in CHANGES
        found: dict[int, Said] = {}
        for row, one in enumerate(objects) if of_changes or self.wanted.reading.nested else ():
            if isinstance(one, Change if of_changes else DescribedFields):
                known = found.get(id(one.kinds))
                if known is None:
                    known = found[id(one.kinds)] = self._of_found(one.kinds), []
                known[1].append(row)
        return [*found.values()]

    def _of_found(self, kinds: Mapping[str, str]) -> Mapping[str, str]:
        """The kinds of columns that may have to become others: of change events any, else those with parts."""
        if self.wanted.reading.format in CHANGES:
            return kinds
        return {name: self.wanted.found_kind(name, kind) for name, kind in kinds.items() if is_nested(kind)}

    def _untold(self, objects: Sequence[Fields], numbers: Sequence[int]) -> Iterator[Misfit]:
        """What change events do not tell of their rows."""
        for one, number in zip(objects, numbers, strict=True):
            if isinstance(one, Change) and (self.wanted.keeps_deleted or not one.deletes):
                for name, (reason, found) in one.unfit.items():
                    if name not in self.wanted.dropped:
                        yield Misfit(number, column_name(name, self.wanted.renamed) or name, reason, found)

    def _tombstones(
        self, messages: pa.RecordBatch, misfits: Sequence[Misfit]
    ) -> tuple[dict[int, Fields], list[Misfit]]:
        """The misfits that delete a row, as key fields by their row in the batch, and the other misfits."""
        kinds = {one.field: one.kind for one in self.step.columns}
        framed = None if self.wanted.reading.registry is None else cast("Reader", reader(self.wanted.reading))
        found, others = dict[int, Fields](), list[Misfit]()
        for one in misfits:
            record_key = messages["record_key"][one.row].as_py() if one.reason == NO_BODY else None
            try:
                fields = None if record_key is None else self.wanted.tombstone(record_key, kinds, framed)
            except NoObject as error:
                others.append(replace(one, reason=error.reason, found=f"the record's key: {error}"))
                continue
            if fields is None:
                others.append(one)
            else:
                found[one.row] = fields
        return found, others

    def _with_key(self, made: pa.RecordBatch, numbers: Sequence[int]) -> tuple[pa.RecordBatch, list[Misfit]]:
        missing = pa.nulls(made.num_rows)  # no message has had the field yet
        columns = (made[name] if name in made.schema.names else missing for name in self.wanted.key_columns)
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
        wider: Mapping[tuple[str, str], MessagePlace],
    ) -> list[Misfit]:
        """Note what decides whether a column of numbers is widened. Returns the other misfits."""
        if wider:  # all is parsed once more
            told.add(Report(wider=wider))
            return list(misfits)
        if column.kind == "double" and column.mask is None:
            large = [place_of(row) for row in _large_integers(array, raws, misfits)]
            told.add(Report(large={column.name: min(large)} if large else {}))
        if column.kind != "bigint" or column.name in self.step.unwidened:
            return list(misfits)
        fractions = {one.row for one in misfits if kind_of(raws[one.row]) == "double"}
        told.add(Report(fractions={column.name: min(map(place_of, fractions))} if fractions else {}))
        return [one for one in misfits if one.row not in fractions]

    def _unfit(self, messages: pa.RecordBatch, misfits: Sequence[Misfit]) -> pa.RecordBatch:
        """The dead letters of `misfits`, without their body if the table masks or drops fields: the log has it."""
        rows = messages.take(pa.array([one.row for one in misfits], pa.int64()))
        given: dict[str, Any] = {
            "table": pa.array([self.wanted.name] * len(misfits), pa.string()),
            "generation": pa.array([self.step.generation] * len(misfits), pa.int32()),
            "column": pa.array([one.column for one in misfits], pa.string()),
            "reason": pa.array([one.reason for one in misfits], pa.string()),
            "found": pa.array([one.found for one in misfits], pa.string()),
        }
        hides = self.wanted.masks or self.wanted.dropped
        given["body"] = pa.nulls(len(misfits), pa.binary()) if hides else pc.coalesce(rows["body"], rows["stored_body"])
        schema = UNFIT.schema.remove_metadata()
        columns = [given[name] if name in given else rows[name] for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _add_of_records(objects: Sequence[Fields], numbers: Sequence[int], messages: pa.RecordBatch) -> None:
    """Add to found tables what only their records say."""
    topics, keys = (messages[name].to_pylist() for name in ("source", "record_key"))
    for one, number in zip(objects, numbers, strict=True):
        add_of_record(one, topics[number], keys[number])


def _of_change(column: Column, objects: Sequence[Fields], deleted: Sequence[bool], stored_at: pa.Array) -> Any:
    """What a column of ours says of each change; None of another column."""
    if column not in OF_CHANGES:
        return None
    if column == DELETED:
        return pa.array(deleted, column.type)
    changes = [one if isinstance(one, Change) else None for one in objects]
    if column == SOURCE_ORDER:
        return pa.array([None if one is None else one.order for one in changes], column.type)
    at = pc.fill_null(stored_at, pa.scalar(0, stored_at.type))  # a time that nobody has is one, too
    if column in (VALID_FROM, VALID_TO):
        at = pc.coalesce(pa.array([None if one is None else one.at_us for one in changes], column.type), at)
    return at if column == VALID_FROM else pc.if_else(pa.array(deleted, pa.bool_()), at, pa.scalar(None, column.type))


def _said_wider(
    column: Column, said: Iterable[Said], raws: Sequence[msgspec.Raw], place_of: Callable[[int], MessagePlace]
) -> dict[tuple[str, str], MessagePlace]:
    """The kinds that a column would have to become another for, each with its first value's place."""
    found: dict[tuple[str, str], MessagePlace] = {}
    for kinds, rows in said if column.mask is None else ():
        kind = kinds.get(column.field)
        if kind is not None and kind != column.kind and joined_kind(column.kind, kind) not in (None, column.kind):
            # as in a step that ended before: a null makes no column, so it must not change one
            first = next((row for row in rows if bytes(raws[row]) != b"null"), None)
            if first is not None:
                found.setdefault((column.name, kind), place_of(first))
    return found


def _without_emptying(
    objects: list[Fields], numbers: list[int], messages: pa.RecordBatch, told: Told
) -> tuple[list[Fields], list[int]]:
    """Note what empties the table, and return the other objects with their rows in the batch."""
    emptying = [at for at, one in enumerate(objects) if isinstance(one, Change) and one.empties]
    for at in emptying:
        log_id, offset, index, stored_at = (messages[one.name][numbers[at]] for one in PLACE)
        one = cast("Change", objects[at])
        stored_us = stored_at.cast(pa.int64()).as_py()
        place = log_id.as_py(), offset.as_py(), index.as_py() or 0, stored_us, one.order
        told.add(Report(emptied=(Emptied(*place, at_us=one.at_us or stored_us),)))
    gone = {*emptying}
    left = [at for at in range(len(objects)) if at not in gone] if gone else []
    return ([objects[at] for at in left], [numbers[at] for at in left]) if gone else (objects, numbers)


def _large_integers(doubles: pa.Array, raws: Sequence[msgspec.Raw], misfits: Sequence[Misfit]) -> Iterator[int]:
    """The rows with integers that fit a column of integers, but would have kept it from being widened."""
    is_large = pc.fill_null(pc.greater_equal(pc.abs(doubles), EXACT), fill_value=False)
    for row in {*(one.row for one in misfits), *pc.indices_nonzero(is_large).to_pylist()}:
        value = long_of(bytes(raws[row]))
        if value is not None and abs(value) >= EXACT:
            yield row


def _missing_body(one: Misfit, messages: pa.RecordBatch) -> Misfit:
    """`one` of `messages`; if it has no body, it says why there is none.

    A record of Kafka may have none. One of RocketMQ always has: it cannot be decompressed, or its inner batch is not
    what the record says.
    """
    if one.reason != NO_BODY:
        return one
    names = ("stored_body", "sys_flag", "batch_index")
    stored, sys_flag, index = (messages[name][one.row].as_py() for name in names)
    if stored is not None:
        found = f"sys_flag {sys_flag}, {len(stored):,} bytes that cannot be decompressed, or are too many then"
        return replace(one, reason=_NOT_DECOMPRESSED, found=found)
    if index is not None:
        return replace(one, found=f"sys_flag {sys_flag}, an inner batch that has no message {index}")
    return one


def _is_in(messages: pa.RecordBatch, unread: Unread) -> pa.Array:
    index = pc.fill_null(messages["batch_index"], 0)
    found = pc.and_(pc.equal(messages["log_id"], unread.log_id), pc.equal(messages["offset"], unread.offset))
    for start, end in unread.read:
        found = pc.and_(found, pc.or_(pc.less(index, start), pc.greater_equal(index, end)))
    return found


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


@dataclass(frozen=True, slots=True)
class FieldSurvey:
    """A task function, picklable, that only reports: which fields messages have, and how many cannot be read.

    Without a `reading` it only counts the messages.
    """

    reading: Reading | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        told = Told(FoundFields(_short))
        for batch in batches:
            for part, found in guard.in_sound_parts(self._look, in_columns(batch, MESSAGES)):
                if isinstance(found, Exception):
                    told.see_messages(part)
                else:
                    told.take(found)
        yield as_row(told.report)

    def _look(self, messages: pa.RecordBatch) -> Told:
        told, rows = Told(FoundFields(_short)), 0
        if self.reading is not None:
            objects, numbers, _ = taken_apart(messages["body"].to_pylist(), reader(self.reading))
            told.see_left(objects, numbers, MessagePlaces(messages), kind_with_times)
            rows = len(objects)
        told.see_messages(messages, rows)
        return told


def _short(field: str) -> str | None:
    """The field, unless its name is too long for any use."""
    return field if len(field) <= MOST_CHARACTERS else None
