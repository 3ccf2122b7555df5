"""The tables of a database that change events are of: a typed table has a row for each, and its key. Pure.

`TableNames` reads only the head of a message: whose rows it has, and what their primary key is. Canal says `pkNames`,
or `isKey` of columns in its packets, Maxwell `primary_key_columns`; of Debezium the record's key has the columns.
`OneOfMany` passes by, unparsed, messages that do not mention a table: each table that was found reads what all have
sent, and so only `TableNames` tells of those that are no event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from sinks.typed.formats.canal import PACKET, ROWS
from sinks.typed.formats.changes import Change
from sinks.typed.formats.json_fields import Fields, NoObject
from sinks.typed.patterns import is_meant, is_pattern

KINDS: Final = {"database": "string", "schema": "string", "table": "string", "topic": "string", "primary_key": "json"}
"""The fields of a row, with the kinds of their columns."""
KEY: Final = ("database", "table", "topic")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
_ESCAPED: Final = re.compile(rb"\\u00[3-7]").search
"""Finds a letter of a plain name that is written in the other way that JSON has."""
_NO_LETTER: Final = re.compile(r"[^a-z0-9_]")


@dataclass(frozen=True, slots=True, order=True)
class SourceTable:
    """A table of a database, as events of `topics` name it: with its schema, if it is in one, as ``public.orders``."""

    database: str
    table: str
    schema: str = ""
    topics: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def bare(self) -> str:
        return self.table.removeprefix(f"{self.schema}.") if self.schema else self.table

    def is_wanted(self, database: str, table: str, exclude: tuple[str, ...]) -> bool:
        is_of = is_meant(self.database, (database,)) and any(is_meant(one, (table,)) for one in (self.table, self.bare))
        return is_of and not is_meant(str(self), exclude)

    def named(self, pattern: str) -> str:
        """`pattern` with the table's names in the place of ``{database}``, ``{schema}`` and ``{table}``.

        A letter that no name of a typed table has becomes ``_``.
        """
        parts = {"{database}": self.database, "{schema}": self.schema, "{table}": self.bare}
        for word, name in parts.items():
            pattern = pattern.replace(word, _NO_LETTER.sub("_", name.lower()))
        return pattern


def exactly(name: str) -> str:
    """The pattern that only `name` matches."""
    return re.escape(name) if is_pattern(name) else name


class _CanalHead(msgspec.Struct):
    type: str = ""
    database: str | None = None
    table: str | None = None
    isDdl: bool | None = None
    pkNames: list[str] | None = None


class _MaxwellHead(msgspec.Struct):
    type: str = ""
    database: str | None = None
    table: str | None = None
    primary_key_columns: list[str] | None = None


class _Source(msgspec.Struct):
    db: str | None = None
    schema: str | None = None
    table: str | None = None


class _Envelope(msgspec.Struct):
    op: str | None = None
    source: _Source | None = None


class _DebeziumHead(_Envelope):
    payload: _Envelope | None = None


Reader: TypeAlias = Callable[[bytes | None], Sequence[Fields]]
"""A reader of change events."""

_CANAL: Final = msgspec.json.Decoder(_CanalHead)
_MAXWELL: Final = msgspec.json.Decoder(_MaxwellHead)
_DEBEZIUM: Final = msgspec.json.Decoder(_DebeziumHead)
_OBJECT: Final = msgspec.json.Decoder(Fields)


def _of_canal(body: bytes) -> SourceTable | None:
    head = _CANAL.decode(body)
    if head.isDdl or head.type not in ROWS or head.table is None:
        return None
    return SourceTable(head.database or "", head.table, key=tuple(head.pkNames or ()))


def _of_maxwell(body: bytes) -> SourceTable | None:
    head = _MAXWELL.decode(body)
    if head.type not in ("insert", "update", "delete", "bootstrap-insert") or head.table is None:
        return None
    return SourceTable(head.database or "", head.table, key=tuple(head.primary_key_columns or ()))


def _of_debezium(body: bytes) -> SourceTable | None:
    head = _DEBEZIUM.decode(body)
    event = head if head.op is not None or head.payload is None else head.payload
    if event.op not in ("r", "c", "u", "d") or event.source is None or event.source.table is None:
        return None
    source, schema = event.source, event.source.schema or ""
    return SourceTable(source.db or "", f"{schema}.{source.table}" if schema else source.table or "", schema)


_HEADS: Final[Mapping[str, Callable[[bytes], SourceTable | None]]] = {
    "canal": _of_canal,
    "debezium": _of_debezium,
    "maxwell": _of_maxwell,
}


class TableNames:
    """A reader that gives the table of a message's rows, as a row.

    What has no rows is left to `others`, the reader of the format for any table: it says what is none of its messages.
    """

    def __init__(self, form: str, others: Reader) -> None:
        self._form = form
        self._head = _HEADS[form]
        self._others = others

    def __call__(self, body: bytes | None) -> list[Fields]:
        """The tables of a message's rows; a packet of Canal may have several. Raises NoObject."""
        if body is not None and self._head is _of_canal and body[:1] in PACKET:
            from sinks.typed.formats.canal_packet import tables_of

            return tables_of(body)
        try:
            found = self._head(body or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._others(body)
            raise NoObject(f"not_{self._form}", f"its table is said in JSON alone: {error}") from None
        if found is not None:
            return [row_of(found)]
        if any(not isinstance(one, Change) or not one.empties for one in self._others(body)):
            raise NoObject(f"not_{self._form}", "rows, and no table that they are of")
        return []


def row_of(table: SourceTable) -> Fields:
    """The row of `table`, as far as a message says it."""
    said = {"database": table.database, "schema": table.schema, "table": table.table}
    return _raw({**said, "primary_key": table.key} if table.key else said)


class OneOfMany:
    """A reader of rows of `table`: of `read`, for messages that mention it. What is no event `TableNames` tells."""

    def __init__(self, table: str, read: Reader) -> None:
        self._read = read
        self._name = table.encode() if _PLAIN.fullmatch(table) else b""
        self._quoted = b'"%b"' % self._name if self._name else b""

    def __call__(self, body: bytes | None) -> Sequence[Fields]:
        """The rows of a message. Raises NoObject."""
        return [] if body is None or not self._is_mentioned(body) else self._read(body)

    def _is_mentioned(self, body: bytes) -> bool:
        if body[:1] in PACKET:
            return self._name in body
        return self._quoted in body or _ESCAPED(body) is not None


def add_of_record(table: Fields, topic: str | None, record_key: bytes | None) -> None:
    """Add to a row of `TableNames` what only the record says."""
    key = table_key(record_key) if "primary_key" not in table else ()
    table.update(_raw({"topic": topic or ""} | ({"primary_key": key} if key else {})))


def table_key(record_key: bytes | None) -> tuple[str, ...]:
    """The columns in a key of Kafka Connect (JSON), with its schema or without; none if it is no such key."""
    try:
        found = _OBJECT.decode(record_key or b"")
        if found.keys() == {"schema", "payload"} and bytes(found["schema"])[:1] == b"{":
            found = _OBJECT.decode(found["payload"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(found)


def _raw(said: Mapping[str, object]) -> Fields:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in said.items()}
