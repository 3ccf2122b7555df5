"""Debezium's change events (JSON of Kafka Connect), with their schema and without. Pure.

An event is an envelope, with `op`, `before`, `after` and `source`; with ``schemas.enable`` it is the `payload` beside
its `schema`, which says of each field what stands in the column:

    schema                                   kind of the column      value
    boolean, int8 to int32, int64            boolean, int, bigint
    float, double                            double
    string, Enum, EnumSet, Uuid, Xml, …      string
    bytes                                    string                  base64, as it comes
    Decimal                                  decimal(p,s)            base64, or a number; beyond 38 digits a string
    VariableScaleDecimal                     string
    Date                                     date                    of days
    Time, MicroTime, NanoTime                string                  12:34:56.789000; what is finer is cut off
    Timestamp, MicroTimestamp, NanoTimestamp timestamp               databases say no zone with them: as UTC
    ZonedTimestamp                           timestamp
    Year                                     int
    Bits                                     string                  its digits; the bytes have the last one first
    Json                                     json
    struct, array, map                       json

Without a schema values are as JSON has them; a declared date takes days, too.

`__debezium_unavailable_value` stands for a large value of PostgreSQL that an update has not changed. It is taken from
`before`, if that has it (``REPLICA IDENTITY FULL``); otherwise nobody knows it: null, and a row in `unfit`.

The position is, of MySQL and MariaDB, file, position and row of the binary log; of PostgreSQL the LSN.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from sinks.typed.columns import MOST_DIGITS
from sinks.typed.formats.binary import day, instant
from sinks.typed.formats.changes import (
    Change,
    Wanted,
    as_kind,
    bits,
    clock,
    file_number,
    part,
    placed,
    quoted,
)
from sinks.typed.formats.json_fields import Fields, NoObject, fields_of, string_of
from sinks.typed.formats.scalars import long_of

_NOT_DEBEZIUM: Final = "not_debezium"
_ENVELOPE: Final = frozenset(("schema", "payload"))
_OTHERS: Final = (
    frozenset(("ddl", "databaseName")),  # a change of a schema
    frozenset(("status", "event_count")),  # the beginning, or the end, of a transaction
)
_HEARTBEAT: Final = frozenset(("ts_ms", "ts_us", "ts_ns"))
_UNAVAILABLE: Final = "__debezium_unavailable_value"
_STANDS_FOR_NONE: Final = frozenset(
    (
        f'"{_UNAVAILABLE}"'.encode(),
        b'"' + base64.b64encode(_UNAVAILABLE.encode()) + b'"',
        msgspec.json.encode([_UNAVAILABLE]),
        msgspec.json.encode([base64.b64encode(_UNAVAILABLE.encode()).decode()]),
        msgspec.json.encode([*_UNAVAILABLE.encode()]),
        msgspec.json.encode({_UNAVAILABLE: _UNAVAILABLE}),
        msgspec.json.encode(msgspec.json.encode({_UNAVAILABLE: _UNAVAILABLE}).decode()),
    )
)

_Convert: TypeAlias = Callable[[msgspec.Raw], msgspec.Raw]
"""Makes what a body of JSON would have of the value. Raises ValueError for one that its type does not have."""
_Columns: TypeAlias = Mapping[str, tuple[str, _Convert]]


class _Source(msgspec.Struct):
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    connector: str = ""
    ts_ms: int = 0
    file: str | None = None
    pos: int = 0
    row: int = 0
    server_id: int = 0
    lsn: int | None = None
    sequence: str | None = None


class Debezium:
    """A reader of events that gives the wanted rows."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._dates = [name for name, kind in wanted.kinds.items() if kind == "date"]

    def __call__(self, body: bytes | None) -> list[Change]:
        """The rows of an event; none if it has none, or is of another table. Raises NoObject."""
        fields, schema = fields_of(body), b""
        if fields.keys() == _ENVELOPE:
            schema = bytes(fields["schema"]).removeprefix(b"null")
            fields = part(fields, "payload", Fields, _NOT_DEBEZIUM) or {}
        if "op" not in fields or "source" not in fields:
            if fields and (fields.keys() <= _HEARTBEAT or any(fields.keys() >= one for one in _OTHERS)):
                return []
            raise NoObject(_NOT_DEBEZIUM, f"no op and source, but {', '.join(fields) or 'nothing'}")
        return self._rows(fields, schema)

    def _rows(self, fields: Fields, schema: bytes) -> list[Change]:
        operation = part(fields, "op", str, _NOT_DEBEZIUM)
        source = part(fields, "source", _Source, _NOT_DEBEZIUM) or _Source()
        if operation == "m" or not self._wanted.has(source.db, source.table, f"{source.schema}.{source.table}"):
            return []
        if operation not in ("r", "c", "u", "d", "t"):
            raise NoObject(_NOT_DEBEZIUM, f"op {operation}")
        order = self._wanted.ordered(_order(source), f"no position is known of connector {source.connector}")
        if operation == "t":
            return [Change({}, {}, empties=True, order=order)]
        before, after = (part(fields, one, Fields, _NOT_DEBEZIUM) for one in ("before", "after"))
        is_gone = operation == "d"
        row = before if is_gone else after
        if row is None:
            raise NoObject("no_row", f"op {operation} without {'before' if is_gone else 'after'}")
        found = []
        if not is_gone and before is not None:
            for name in [name for name, raw in row.items() if bytes(raw) in _STANDS_FOR_NONE]:
                row[name] = before.get(name, row[name])
            if self._wanted.is_moved(before, row):
                found.append(self._change(before, schema, order, deletes=True))
        return [*found, self._change(row, schema, order, deletes=is_gone)]

    def _change(self, row: Fields, schema: bytes, order: str | None, *, deletes: bool) -> Change:
        columns = _columns(schema) if schema else {}
        values: Fields = {}
        unfit: dict[str, tuple[str, str]] = {}
        for name, raw in row.items():
            text = bytes(raw)
            if text in _STANDS_FOR_NONE:
                unfit[name] = ("unavailable", _UNAVAILABLE)
            elif name in columns and text != b"null":
                values[name] = _converted(columns[name][1], raw)
            else:
                values[name] = raw
        for name in () if schema else self._dates:
            if name in values and (days := long_of(bytes(values[name]))) is not None:
                values[name] = msgspec.Raw(msgspec.json.encode(day(days)))
        kinds = {name: kind for name, (kind, _) in columns.items()}
        return Change(values, kinds, deletes=deletes, order=order, unfit=unfit)


def _converted(convert: _Convert, raw: msgspec.Raw) -> msgspec.Raw:
    """The converted value; as it came if it is none of its type, and so does not fit."""
    try:
        return convert(raw)
    except (ValueError, ArithmeticError, msgspec.MsgspecError):
        return raw


def _order(source: _Source) -> str | None:
    if source.connector == "postgresql":
        lsn = source.lsn if source.lsn is not None else _last_of(source.sequence)
        return None if lsn is None else placed([(lsn, 19)], source.ts_ms)
    number = None if source.file is None else file_number(source.file)
    if number is None:
        return None
    return placed([(number, 10), (source.pos, 19), (source.row, 10)], source.ts_ms, source.server_id)


def _last_of(sequence: str | None) -> int | None:
    """The LSN at which rows of an incremental snapshot were read, which have none of their own."""
    try:
        numbers = msgspec.json.decode(sequence or "[]", type=list[str | None])
        return int(numbers[-1] or "") if numbers else None
    except (ValueError, msgspec.MsgspecError):
        return None


class _Schema(msgspec.Struct):
    type: str
    name: str | None = None
    field: str = ""
    parameters: dict[str, str] | None = None
    fields: list[msgspec.Raw] = []


@lru_cache(maxsize=256)
def _columns(schema: bytes) -> _Columns:
    """The kinds of a row's columns and how their values are made, from the schema of an event. Raises NoObject."""
    try:
        parts = [_schema(one) for one in _schema(schema).fields]
        row = next(one for one in parts if one.field in ("after", "before"))
        return {one.field: _column(one) for one in map(_schema, row.fields)}
    except (msgspec.MsgspecError, StopIteration) as error:
        raise NoObject(_NOT_DEBEZIUM, f"a schema without rows: {error}") from None


def _schema(raw: Any) -> _Schema:
    return msgspec.json.decode(raw, type=_Schema)


def _column(schema: _Schema) -> tuple[str, _Convert]:
    said = schema.parameters or {}
    match schema.name:
        case "org.apache.kafka.connect.data.Decimal":
            scale = int(said.get("scale", "0"))
            # without it there are BIGINT UNSIGNED, and PostgreSQL's money
            return _decimal(said.get("connect.decimal.precision", "38" if scale else "20"), scale)
        case "io.debezium.data.VariableScaleDecimal":
            return "string", _variable
        case "io.debezium.data.Bits":
            return "string", _bits(int(said.get("length", "1")))
    return _NAMED.get(schema.name or "") or _PLAIN.get(schema.type, ("json", _same))


def _same(raw: msgspec.Raw) -> msgspec.Raw:
    return raw


def _number(raw: msgspec.Raw) -> int:
    value = long_of(bytes(raw))
    if value is None:
        raise ValueError("no integer")
    return value


def _made(make: Callable[[int], Any]) -> _Convert:
    return lambda raw: msgspec.Raw(msgspec.json.encode(make(_number(raw))))


def _bytes(raw: msgspec.Raw) -> bytes:
    return base64.b64decode(string_of(bytes(raw)) or "", validate=True)


def _unscaled(value: bytes, scale: int) -> str:
    unscaled = int.from_bytes(value, "big", signed=True)
    return f"{Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)):f}"


def _decimal(precision: str, scale: int) -> tuple[str, _Convert]:
    is_short = precision.isdigit() and 0 < int(precision) <= MOST_DIGITS and 0 <= scale <= int(precision)

    def convert(raw: msgspec.Raw) -> msgspec.Raw:
        if bytes(raw)[:1] != b'"':  # decimal.format = NUMERIC
            return raw if is_short else quoted(bytes(raw).decode())
        text = _unscaled(_bytes(raw), scale)
        return msgspec.Raw(text.encode()) if is_short else quoted(text)

    return f"decimal({precision},{scale})" if is_short else "string", convert


class _Variable(msgspec.Struct):
    scale: int
    value: str


def _variable(raw: msgspec.Raw) -> msgspec.Raw:
    found = msgspec.json.decode(raw, type=_Variable)
    return quoted(_unscaled(base64.b64decode(found.value, validate=True), found.scale))


def _bits(length: int) -> _Convert:
    return lambda raw: quoted(bits(int.from_bytes(_bytes(raw), "little"), length))


def _json(raw: msgspec.Raw) -> msgspec.Raw:
    text = string_of(bytes(raw))
    return raw if text is None else as_kind("json", text)


_DATE: Final[tuple[str, _Convert]] = ("date", _made(day))
_MILLIS: Final[tuple[str, _Convert]] = ("timestamp", _made(lambda value: instant(value * 1000)))
_CLOCK: Final[tuple[str, _Convert]] = ("string", _made(lambda value: clock(value * 1000)))
_NAMED: Final[Mapping[str, tuple[str, _Convert]]] = {
    "io.debezium.time.Date": _DATE,
    "org.apache.kafka.connect.data.Date": _DATE,
    "io.debezium.time.Time": _CLOCK,
    "org.apache.kafka.connect.data.Time": _CLOCK,
    "io.debezium.time.MicroTime": ("string", _made(clock)),
    "io.debezium.time.NanoTime": ("string", _made(lambda value: clock(value // 1000))),
    "io.debezium.time.Timestamp": _MILLIS,
    "org.apache.kafka.connect.data.Timestamp": _MILLIS,
    "io.debezium.time.MicroTimestamp": ("timestamp", _made(instant)),
    "io.debezium.time.NanoTimestamp": ("timestamp", _made(lambda value: instant(value // 1000))),
    "io.debezium.time.ZonedTimestamp": ("timestamp", _same),
    "io.debezium.data.Json": ("json", _json),
}
_PLAIN: Final[Mapping[str, tuple[str, _Convert]]] = {
    "boolean": ("boolean", _same),
    "int8": ("int", _same),
    "int16": ("int", _same),
    "int32": ("int", _same),
    "int64": ("bigint", _same),
    "float": ("double", _same),
    "float32": ("double", _same),
    "double": ("double", _same),
    "float64": ("double", _same),
    "string": ("string", _same),
    "bytes": ("string", _same),
}
