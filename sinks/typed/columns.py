"""The columns of a typed table: their kinds, and how they are found. Pure.

A table begins with the columns that all typed tables have (`PLACE`), followed by those of its fields, in the order in
which they were found or declared, and by `REST`. There are few scalar kinds, which every engine reads; a list or an
object inside a body is JSON text, or a column with parts (`sinks/typed/kinds.py`).

    kind             column      what a JSON body gives it
    boolean          boolean     true, false
    int, bigint      int, long   an integer that fits
    double           double      a number that is finite; an integer only if no digit is lost
    string           string      a string
    timestamp        timestamp   a string: RFC 3339, with its zone; cut after its microsecond
    timestamp_ms     timestamp   an integer: milliseconds since 1970, UTC
    date             date        a string: 2026-11-25
    decimal(p,s)     decimal     a number, or a string with one as JSON writes it, that has no more digits
    json             string      anything, as its text

`null` is null in each. A time lies in the years 1 to 9999, in UTC. A value that a column does not take is a misfit
(`sinks/typed/formats/json_fields.py`), never a wrong value.

If fields are found and not declared (``schema = "infer"``), the first value that is not null decides the column's kind.
Integers become double when a fraction comes, if none of them loses a digit. Where events say their types, integers and
decimals become decimals that hold what the source has now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from sinks.tables import LOG_ID, TableSpec
from sinks.typed.kinds import arrow_type, is_name, is_nested, joined_kind, leaves
from sources.records import TIMESTAMP

FOLDER: Final = "tables"
"""The folder in the warehouse that has a folder for each typed table."""
FIELD_KEY: Final = "logtwin.field"
KIND_KEY: Final = "logtwin.kind"
MASK_KEY: Final = "logtwin.mask"
SQL_KEY: Final = "logtwin.sql"

PLACE: Final = (
    LOG_ID,
    pa.field("offset", pa.int64(), metadata={"comment": "where its record begins in the log"}),
    pa.field("batch_index", pa.int32(), metadata={"comment": "place in its inner batch; null of any other message"}),
    pa.field("stored_at", TIMESTAMP, metadata={"comment": "when the master stored it, by the clock of the master"}),
)
"""(log_id, offset, batch_index) names a message: here, in the views, in the dead letters."""
REST: Final = pa.field(
    "_rest", pa.string(), metadata={"comment": "JSON text of the fields that have no column; null without any"}
)

# The kinds of columns with statistics in the Delta log, by which queries skip files; at most 32 columns, as in Delta.
_SKIPPED_BY: Final = ("int", "bigint", "string", "timestamp", "timestamp_ms", "double")
_MOST_STATISTICS: Final = 32
# Values of these kinds usually repeat; Arrow gives up a dictionary that grows too large.
_WITH_DICTIONARY: Final = ("string", "boolean", "int", "date")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is filled from a field of the body, or computed by `sql` over the other columns.

    A column with a `mask` is a string, whatever the field is.
    """

    name: str
    field: str
    kind: str
    mask: str | None = None
    sql: str | None = None

    @property
    def type(self) -> pa.DataType:
        return arrow_type("string" if self.mask is not None else self.kind)


DELETED: Final = Column("_deleted", "", "boolean")
"""The column that tables with deletes have before those of their fields (`sinks/typed/definition.py`)."""
SOURCE_ORDER: Final = Column("_source_order", "", "string")
"""The column that tables of change events have there, too, if their rows follow the order of their source."""
DELETED_AT: Final = Column("_deleted_at", "", "timestamp")
"""The column that such tables have in the place of `DELETED` if they keep deleted rows."""
VALID_FROM: Final = Column("_valid_from", "", "timestamp")
VALID_TO: Final = Column("_valid_to", "", "timestamp")
"""The columns that tables with a row for each change have there (`sinks/typed/step/validity.py`)."""
OF_CHANGES: Final = (DELETED, DELETED_AT, SOURCE_ORDER, VALID_FROM, VALID_TO)
_OURS: Final = {one.name for one in (*OF_CHANGES, *PLACE)}


def table_spec(table: str, columns: Sequence[Column]) -> TableSpec:
    """The spec of the typed table `table` with `columns`, in its folder of the warehouse."""
    statistics = [one.name for one in columns if one.kind in _SKIPPED_BY]
    return TableSpec(
        table,
        f"the typed table {table}",
        pa.schema([*PLACE, *(pa.field(one.name, one.type, metadata=_as_metadata(one)) for one in columns), REST]),
        statistics=("log_id", "offset", "stored_at", *statistics[:_MOST_STATISTICS]),
        append_only=False,
        folder=f"{FOLDER}/{table}",
        growing=tuple(one.name for one in columns),
        dictionaries=("log_id", *(f"{one.name}{leaf}" for one in columns for leaf in _repeated(one))),
    )


def _repeated(one: Column) -> Iterator[str]:
    """Where values of a column repeat, from its name on."""
    found = [("", one.kind)] if one.mask is not None else leaves(one.kind)
    return (leaf for leaf, kind in found if kind in _WITH_DICTIONARY)


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns of fields in a table's schema, as the Delta log has it."""
    described = ((one["name"], one["metadata"]) for one in schema["fields"])
    return tuple(
        Column(name, of[FIELD_KEY], of[KIND_KEY], of.get(MASK_KEY), of.get(SQL_KEY))
        for name, of in described
        if FIELD_KEY in of
    )


def _comment(one: Column) -> str:
    if one == DELETED:
        return "whether a message has deleted the row of this key, which then is all that is left of it"
    if one == DELETED_AT:
        return "when the master stored the deletion, 1970 if it does not say; null of a row that is there"
    if one == SOURCE_ORDER:
        return "the place of the row's change at its source: of two of a key the greater one is newer"
    if one == VALID_FROM:
        return "when its source made the change, or when the master stored it if the source does not say"
    if one == VALID_TO:
        return "until when it stood, which is not included: null if it stands now, as _valid_from if it never did"
    if one.sql is not None:
        return f"computed: {one.sql}"
    text = f"field {one.field}"
    if one.kind == "json":
        text += ", as JSON text"
    return text if one.mask is None else f"{text}, masked ({one.mask})"


def _as_metadata(one: Column) -> dict[str, str]:
    found = {"comment": _comment(one), FIELD_KEY: one.field, KIND_KEY: one.kind}
    said = {MASK_KEY: one.mask, SQL_KEY: one.sql}
    return {**found, **{name: value for name, value in said.items() if value is not None}}


@dataclass(frozen=True, slots=True, order=True)
class MessagePlace:
    """The place of a message. Places order the messages of a log as the log does, and logs by their ids."""

    log_id: str
    offset: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class SeenValues:
    """A field that has no column: for each kind of its values, the place of the first one."""

    field: str
    first: Mapping[str, MessagePlace]

    def and_also(self, other: SeenValues) -> SeenValues:
        """Combine what two tasks have seen of the same field."""
        places = dict(self.first)
        for kind, place in other.first.items():
            places[kind] = min(place, places.get(kind, place))
        return SeenValues(self.field, places)

    @property
    def of_all_texts(self) -> SeenValues:
        """The same, where texts are times only if all are; that depends on where one stops to look."""
        if not {"timestamp", "string"} <= self.first.keys():
            return self
        others = {kind: place for kind, place in self.first.items() if kind != "timestamp"}
        return SeenValues(self.field, others).and_also(SeenValues(self.field, {"string": self.first["timestamp"]}))

    @property
    def kind(self) -> str:
        """The kind of the first value; for numbers double if any has a fraction."""
        found = min(self.first, key=lambda kind: self.first[kind])
        return "double" if found == "bigint" and "double" in self.first else found

    @property
    def place(self) -> MessagePlace:
        return min(self.first.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """A change of a column, and the message that caused it."""

    column: str
    change: str  # added, widened, grown
    was: str | None
    kind: str
    log_id: str
    offset: int


def with_found(
    columns: Sequence[Column],
    seen: Iterable[SeenValues],
    *,
    renamed: Mapping[str, str],
    masks: Mapping[str, str],
    most: int,
) -> tuple[tuple[Column, ...], tuple[ColumnChange, ...]]:
    """`columns` with a new one for each field that has none and can have one, and the changes.

    A field gets no column if no column can have its name, if one has it already (ignoring case), or if there are `most`
    columns: its values are in `_rest`.
    """
    found, changes = list(columns), list[ColumnChange]()
    taken = {one.name.casefold() for one in columns} | {one.name.casefold() for one in (*PLACE, REST)}
    for one in sorted(seen, key=lambda one: one.place):  # a stable sort: fields of one message stay in their order
        name = column_name(one.field, renamed)
        if name is None or name.casefold() in taken or len(found) >= most:
            continue
        taken.add(name.casefold())
        found.append(Column(name, one.field, one.kind, masks.get(one.field)))
        changes.append(
            ColumnChange(
                column=name, change="added", was=None, kind=one.kind,
                log_id=one.place.log_id, offset=one.place.offset,
            )
        )  # fmt: skip
    return tuple(found), tuple(changes)


def column_name(field: str, renamed: Mapping[str, str]) -> str | None:
    """The name of a field's column; None if it can have none."""
    name = renamed.get(field, field)
    if name in _OURS:
        name = f"{name}_"
    return name if is_name(name) else None


def widened(
    columns: Sequence[Column], kinds: Mapping[str, tuple[str, MessagePlace]]
) -> tuple[tuple[Column, ...], tuple[ColumnChange, ...]]:
    """`columns` with those in `kinds` widened, or grown if they have parts, and the changes.

    `kinds` has, by column, what it becomes, and the place of the first message that needs it. Growth rewrites no file.
    """
    changes = tuple(
        ColumnChange(
            column=one.name, change="grown" if is_nested(one.kind) else "widened",
            was=one.kind, kind=kinds[one.name][0],
            log_id=kinds[one.name][1].log_id, offset=kinds[one.name][1].offset,
        )
        for one in columns
        if one.name in kinds
    )  # fmt: skip
    found = (Column(one.name, one.field, kinds[one.name][0], one.mask) if one.name in kinds else one for one in columns)
    return tuple(found), changes


def said_wider(
    columns: Sequence[Column], said: Mapping[tuple[str, str], MessagePlace]
) -> dict[str, tuple[str, MessagePlace]]:
    """What columns become so that they hold what their source says: `said` has a column and a kind, and where."""
    found: dict[str, tuple[str, MessagePlace]] = {}
    kinds = {one.name: one.kind for one in columns}
    for (name, kind), place in sorted(said.items(), key=lambda one: one[1]):
        joined = joined_kind(kinds[name], kind)
        if joined is not None and joined != kinds[name]:
            kinds[name] = joined
            found[name] = joined, found[name][1] if name in found else place
    return found
