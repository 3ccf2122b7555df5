"""What the tasks of a step report: where messages are, which fields have no column yet, what became of them. Pure.

What a task has found goes to the driver, and a field's name is a producer's: so it tells of as many fields as the table
has room for, and each name is one that a column can have. The fields of the first messages count, as `with_found` in
`sinks/typed/columns.py` decides.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.data_file import DataFile
from sinks.typed.columns import PLACE, REST, Column, MessagePlace, SeenValues, column_name
from sinks.typed.formats.json_fields import Fields, Misfit, each_left, kind_of
from sinks.typed.kinds import roomy_kind
from sinks.typed.state import Emptied

_T = TypeVar("_T")

MOST: Final = 1_000
"""How many fields a task tells of, unless a table says less."""
REPORT_DDL: Final = "report binary"
"""The columns of a query whose tasks report, for Spark. Tasks of an RDD return values as such."""
_SCHEMA: Final = pa.schema([pa.field("report", pa.binary())])
_SHOWN: Final = 80
_AS_FOUND: Final = ("bigint", "double", "string", "boolean", "json", "timestamp")

Span: TypeAlias = tuple[str, int, int, int]
"""A log id, the offsets of its first message and of its last, and the greatest index in an inner batch."""


def as_row(report: object) -> pa.RecordBatch:
    """What a task yields."""
    return pa.record_batch([pa.array([pickle.dumps(report)])], schema=_SCHEMA)


def reported(rows: Iterable[Any]) -> list[Any]:
    """What the tasks have made rows of."""
    return [pickle.loads(row["report"]) for row in rows]  # noqa: S301 - our own tasks wrote it


class MessagePlaces:
    """The places of the messages in a batch, by row."""

    def __init__(self, messages: pa.RecordBatch) -> None:
        self._messages = messages

    def __getitem__(self, row: int) -> MessagePlace:
        log_ids, offsets, indexes = self._lists
        return MessagePlace(log_ids[row], offsets[row], indexes[row] or 0)

    @cached_property
    def _lists(self) -> tuple[list[str], list[int], list[int | None]]:
        log_ids, offsets, indexes = (self._messages[one.name].to_pylist() for one in PLACE[:3])
        return log_ids, offsets, indexes


class FoundFields:
    """The fields that were seen first, `most` at most.

    `name_of` gives what a field is called, which is the same for fields of which only one can have a column; None for a
    field that can have none.
    """

    def __init__(self, name_of: Callable[[str], str | None], most: int = MOST) -> None:
        self._name_of = name_of
        self._most = most
        self._seen: dict[str, SeenValues] = {}
        self._names: dict[str, str] = {}  # of the fields in `_seen`
        self._last: MessagePlace | None = None  # there are `most` fields up to here: a later one is not among the first

    def see(self, field: str, kind: str, place: MessagePlace) -> None:
        before = self._seen.get(field)
        if before is None:
            self._add(SeenValues(field, {kind: place}))
        elif kind not in before.first or place < before.first[kind]:
            self._seen[field] = before.and_also(SeenValues(field, {kind: place}))

    def take(self, other: FoundFields) -> None:
        for one in other.first().values():
            before = self._seen.get(one.field)
            if before is None:
                self._add(one)
            else:
                self._seen[one.field] = before.and_also(one)

    def first(self) -> dict[str, SeenValues]:
        """The fields that were seen first, by name, in the order of their messages."""
        kept: dict[str, SeenValues] = {}
        names: set[str] = set()
        for one in sorted(self._seen.values(), key=lambda one: one.place):  # a stable sort: as they stand in a message
            if self._names[one.field] not in names and len(kept) < self._most:
                names.add(self._names[one.field])
                kept[one.field] = one
        return kept

    def _add(self, one: SeenValues) -> None:
        if self._last is not None and one.place > self._last:
            return
        name = self._name_of(one.field)
        if name is None:
            return
        self._seen[one.field], self._names[one.field] = one, name
        if len(self._seen) > 2 * self._most:
            self._seen = self.first()
            self._names = {field: self._names[field] for field in self._seen}
            if len(self._seen) == self._most:
                self._last = max(one.place for one in self._seen.values())


def free_names(columns: Sequence[Column], renamed: Mapping[str, str]) -> Callable[[str], str | None]:
    """What fields are called beside `columns`, ignoring case; None for those that can have no column."""
    taken = {one.name.casefold() for one in (*columns, *PLACE, REST)}

    def name_of(field: str) -> str | None:
        name = column_name(field, renamed)
        return None if name is None or name.casefold() in taken else name.casefold()

    return name_of


@dataclass(frozen=True, slots=True)
class Report:
    """What one task, or several together, made of their messages.

    `fractions` has the place of the first number with a fraction, by column of integers. `wider` has that of the first
    message that says another kind of a column than it has, by both, if some kind holds the values of both. `large` has,
    by column of doubles, the place of the first integer that would have kept a column of integers from being widened.
    `emptied` are the messages that empty the table at its source. `held` is where the messages are; only a look
    tells it.
    """

    messages: int = 0
    rows: int = 0
    files: tuple[DataFile, ...] = ()
    unfit: tuple[DataFile, ...] = ()
    seen: Mapping[str, SeenValues] = field(default_factory=dict)
    fractions: Mapping[str, MessagePlace] = field(default_factory=dict)
    large: Mapping[str, MessagePlace] = field(default_factory=dict)
    wider: Mapping[tuple[str, str], MessagePlace] = field(default_factory=dict)
    first_unfit: tuple[MessagePlace, str, str] | None = None
    emptied: tuple[Emptied, ...] = ()
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
            _first(self.wider, other.wider),
            min(unfit, default=None),
            (*self.emptied, *other.emptied),
            self.sources | other.sources,
            (*self.held, *other.held),
        )


def _first(one: Mapping[_T, MessagePlace], other: Mapping[_T, MessagePlace]) -> dict[_T, MessagePlace]:
    return {name: min(of[name] for of in (one, other) if name in of) for name in {**one, **other}}


def reports(rows: Iterable[Any]) -> Report:
    """What the tasks of a query have reported together."""
    return reduce(Report.and_also, reported(rows), Report())


def looked(batches: Iterable[pa.RecordBatch]) -> Report:
    """How many messages there are, and the span of each log. Holds no message."""
    messages, held = 0, dict[str, Span]()
    for batch in batches:
        messages += batch.num_rows
        places = MessagePlaces(batch)
        for one in map(places.__getitem__, range(batch.num_rows)):
            _, first, last, index = held.get(one.log_id, (one.log_id, one.offset, one.offset, 0))
            held[one.log_id] = one.log_id, min(first, one.offset), max(last, one.offset), max(index, one.index)
    return Report(messages, held=tuple(held.values()))


class Told:
    """Collects a report, without the files."""

    def __init__(self, found: FoundFields) -> None:
        self._found = found
        self._sum = Report()

    @property
    def report(self) -> Report:
        return replace(self._sum, seen=self._found.first())

    def take(self, other: Told) -> None:
        """Add what a part of the messages has told."""
        self._found.take(other._found)
        self.add(other._sum)

    def add(self, more: Report) -> None:
        self._sum = self._sum.and_also(more)

    def see_messages(self, messages: pa.RecordBatch, rows: int = 0) -> None:
        """Note messages, of which so many `rows` were made."""
        self.add(Report(messages.num_rows, rows, sources=frozenset(pc.unique(messages["source"]).to_pylist())))

    def see_left(
        self,
        objects: Sequence[Fields],
        numbers: Sequence[int],
        places: MessagePlaces,
        kind_of: Callable[[msgspec.Raw], str | None] = kind_of,
        found_kind: Callable[[str, str], str] = lambda field, kind: roomy_kind(kind),
    ) -> None:
        """Note the fields of `objects` that have no column; `numbers` are the objects' rows in the batch."""
        for row, name, kind in each_left(objects, kind_of):
            self._found.see(name, kind if kind in _AS_FOUND else found_kind(name, kind), places[numbers[row]])

    def see_unfit(self, misfits: Iterable[Misfit], places: MessagePlaces) -> None:
        firsts = ((places[one.row], one.column or "", f"{one.reason}: {one.found[:_SHOWN]}") for one in misfits)
        self.add(Report(first_unfit=min(firsts, default=None)))
