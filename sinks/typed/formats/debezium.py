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
import binascii
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from sinks.typed.formats.binary import day, instant
from sinks.typed.formats.changes import (
    Change,
    Convert,
    WantedRows,
    as_json,
    as_kind,
    bits,
    clock,
    file_number,
    placed,
    quoted,
)
from sinks.typed.formats.connect import Columns, ConnectColumn, of_json
from sinks.typed.formats.json_fields import Fields, NoObject, decoded_by, fields_of, given, not_too_deep
from sinks.typed.formats.scalars import long_of
from sinks.typed.kinds import MOST_DIGITS, is_nested

_MOST_SCALE: Final = 20_000
"""PostgreSQL's numbers have 16,383 digits behind the point at most."""
_MOST_BITS: Final = 1 << 20
_NOT_DEBEZIUM: Final = "not_debezium"
_OTHERS: Final = (
    frozenset(("ddl", "databaseName")),  # a change of a schema
    frozenset(("status", "event_count")),  # the beginning, or the end, of a transaction
)
_HEARTBEAT: Final = frozenset(("ts_ms", "ts_us", "ts_ns"))
_UNAVAILABLE: Final = "__debezium_unavailable_value"
_IN_BASE64: Final = base64.b64encode(_UNAVAILABLE.encode()).decode()
_STAND_FOR_NONE: Final = frozenset(
    map(
        msgspec.json.encode,
        (
            _UNAVAILABLE, _IN_BASE64, [_UNAVAILABLE], [_IN_BASE64], [*_UNAVAILABLE.encode()],
            {_UNAVAILABLE: _UNAVAILABLE}, msgspec.json.encode({_UNAVAILABLE: _UNAVAILABLE}).decode(),
        ),
    )
)  # fmt: skip
_MARKS: Final = (_UNAVAILABLE.encode(), _IN_BASE64.encode(), b",".join(b"%d" % one for one in _UNAVAILABLE.encode()))
"""One of these is in a message that has any of those."""


class _Source(msgspec.Struct):
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    connector: str = ""
    ts_ms: int = 0
    ts_us: int | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    server_id: int | None = None
    lsn: int | None = None
    sequence: str | None = None

    @property
    def at_us(self) -> int:
        return self.ts_us or self.ts_ms * 1000


class _Event(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()
    op: str | None = None
    source: _Source | None = None
    before: Fields | None = None
    after: Fields | None = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class Debezium:
    """A reader of events that gives the wanted rows."""

    def __init__(self, wanted: WantedRows) -> None:
        self._wanted = wanted
        self._dates = [(name, _date) for name, kind in wanted.kinds if kind == "date"]
        self._nested = [(name, as_json) for name, kind in wanted.kinds if is_nested(kind)]

    def __call__(self, body: bytes | None) -> list[Change]:
        """The rows of an event; none if it has none, or is of another table. Raises NoObject."""
        body = given(body)
        if body[:1] == b"\0":
            raise NoObject(
                _NOT_DEBEZIUM, f"{body[:5].hex()}: schema has to be the URL of the registry with this schema"
            )
        event = decoded_by(_EVENT, body, _NOT_DEBEZIUM)
        if event.op is not None or not (payload := bytes(event.payload)):
            return self._of(body, event, None)
        schema = bytes(event.schema).removeprefix(b"null")
        return self._of(
            payload, decoded_by(_EVENT, payload, _NOT_DEBEZIUM), partial(_columns, schema) if schema else None
        )

    def described(self, columns: Callable[[], Columns]) -> Callable[[bytes], list[Change]]:
        """A reader of events without their schema, whose rows have these `columns`. It raises NoObject."""
        found = cache(partial(_converts, columns))
        return lambda payload: self._of(payload, decoded_by(_EVENT, payload, _NOT_DEBEZIUM), found)

    def _of(self, body: bytes, event: _Event, columns: _Converts | None) -> list[Change]:
        if event.op is None or event.source is None:
            names = fields_of(body).keys()
            if names and (names <= _HEARTBEAT or any(names >= one for one in _OTHERS)):
                return []
            raise NoObject(_NOT_DEBEZIUM, f"no op and source, but {', '.join(names) or 'nothing'}")
        source = event.source
        if event.op == "m" or not self._wanted.has(source.db, source.table, f"{source.schema}.{source.table}"):
            return []
        not_too_deep(body)
        return self._rows(event, source, columns, is_whole=not any(one in body for one in _MARKS))

    def _rows(self, event: _Event, source: _Source, columns: _Converts | None, *, is_whole: bool) -> list[Change]:
        if event.op not in ("r", "c", "u", "d", "t"):
            raise NoObject(_NOT_DEBEZIUM, f"op {event.op}")
        order = None
        if self._wanted.needs_order:
            order = self._wanted.ordered(_order(source), f"no position is known of connector {source.connector}")
        if event.op == "t":
            return [Change({}, {}, empties=True, order=order, at_us=source.at_us)]
        before, is_gone = event.before, event.op == "d"
        row = before if is_gone else event.after
        if row is None:
            raise NoObject("no_row", f"op {event.op} without {'before' if is_gone else 'after'}")
        found = []
        if not is_gone and before is not None:
            for name in () if is_whole else [name for name, raw in row.items() if bytes(raw) in _STAND_FOR_NONE]:
                row[name] = before.get(name, row[name])
            if self._wanted.is_moved(before, row):
                found.append(self._change(before, columns, order, source.at_us, deletes=True))
        unfit = {} if is_whole else _unavailable(row)
        return [*found, self._change(row, columns, order, source.at_us, deletes=is_gone, unfit=unfit)]

    def _change(
        self,
        row: Fields,
        columns: _Converts | None,
        order: str | None,
        at_us: int,
        *,
        deletes: bool,
        unfit: Mapping[str, tuple[str, str]] | None = None,
    ) -> Change:
        kinds, converted = columns() if columns is not None else ({}, self._dates)
        for name, convert in chain(converted, self._nested):
            raw = row.get(name)
            if raw is not None and bytes(raw) != b"null":
                row[name] = _converted(convert, raw)
        return Change(row, kinds, deletes=deletes, order=order, at_us=at_us, unfit=unfit)


def _converted(convert: Convert, raw: msgspec.Raw) -> msgspec.Raw:
    """The converted value; as it came if it is none of its type, and so does not fit."""
    try:
        return convert(raw)
    except (ValueError, ArithmeticError, msgspec.MsgspecError):
        return raw


def _unavailable(row: Fields) -> dict[str, tuple[str, str]]:
    """Take out the values that the event does not have."""
    names = [name for name, raw in row.items() if bytes(raw) in _STAND_FOR_NONE]
    for name in names:
        del row[name]
    return dict.fromkeys(names, ("unavailable", _UNAVAILABLE))


def _order(source: _Source) -> str | None:
    if source.connector == "postgresql":
        lsn = source.lsn if source.lsn is not None else _last_of(source.sequence)
        return None if lsn is None else placed([(lsn, 19)], source.ts_ms)
    number = None if source.file is None else file_number(source.file)
    if number is None:
        return None
    place = [(number, 10), (source.pos or 0, 19), (source.row or 0, 10)]
    return placed(place, source.ts_ms, source.server_id or None)


def _last_of(sequence: str | None) -> int | None:
    """The LSN at which rows of an incremental snapshot were read, which have none of their own."""
    try:
        numbers = msgspec.json.decode(sequence or "[]", type=list[str | None])
        return int(numbers[-1] or "") if numbers else None
    except (ValueError, msgspec.MsgspecError):
        return None


_Columns: TypeAlias = tuple[Mapping[str, str], Sequence[tuple[str, Convert]]]
"""The kinds of columns by field, and the fields whose values are converted."""
_Converts: TypeAlias = Callable[[], _Columns]
"""Returns the columns of a row. Raises NoObject."""


@lru_cache(maxsize=256)
def _columns(schema: bytes) -> _Columns:
    """The columns of a row, from the schema of an event. Raises NoObject."""
    return _converts(partial(of_json, schema))


def _converts(said: Callable[[], Columns]) -> _Columns:
    try:
        columns = {name: _column(one) for name, one in said().items()}
    except ValueError as error:
        raise NoObject(_NOT_DEBEZIUM, f"a schema without rows: {error}") from None
    converted = [(name, convert) for name, (_, convert) in columns.items() if convert is not None]
    return {name: kind for name, (kind, _) in columns.items()}, converted


def _column(schema: ConnectColumn) -> tuple[str, Convert | None]:
    said = schema.parameters or {}
    match schema.name:
        case "org.apache.kafka.connect.data.Decimal" if abs(scale := int(said.get("scale", "0"))) <= _MOST_SCALE:
            # without it there are BIGINT UNSIGNED, and PostgreSQL's money
            return _decimal(said.get("connect.decimal.precision", "38" if scale else "20"), scale)
        case "io.debezium.data.VariableScaleDecimal":
            return "string", _variable
        case "io.debezium.data.Bits" if (length := int(said.get("length", "1"))) <= _MOST_BITS:
            return "string", _bits(length)
    return _NAMED.get(schema.name or "") or (_PLAIN.get(schema.type, "json"), None)


def _number(raw: msgspec.Raw) -> int:
    value = long_of(bytes(raw))
    if value is None:
        raise ValueError("no integer")
    return value


def _made(make: Callable[[int], Any]) -> Convert:
    return lambda raw: msgspec.Raw(msgspec.json.encode(make(_number(raw))))


def _bytes(raw: msgspec.Raw) -> bytes:
    return binascii.a2b_base64(bytes(raw)[1:-1], strict_mode=True)


def _unscaled(value: bytes, scale: int) -> str:
    unscaled = int.from_bytes(value, "big", signed=True)
    if scale <= 0:
        return str(unscaled * 10**-scale)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _decimal(precision: str, scale: int) -> tuple[str, Convert]:
    is_short = precision.isdigit() and 0 < int(precision) <= MOST_DIGITS and 0 <= scale <= int(precision)

    def convert(raw: msgspec.Raw) -> msgspec.Raw:
        text = bytes(raw)
        if text[:1] == b'"':  # otherwise decimal.format = NUMERIC
            text = _unscaled(_bytes(raw), scale).encode()
        return msgspec.Raw(text if is_short else b'"' + text + b'"')

    return f"decimal({precision},{scale})" if is_short else "string", convert


class _Variable(msgspec.Struct):
    scale: int
    value: str


def _variable(raw: msgspec.Raw) -> msgspec.Raw:
    found = msgspec.json.decode(raw, type=_Variable)
    if abs(found.scale) > _MOST_SCALE:
        raise ValueError("more digits than anybody has")
    return quoted(_unscaled(base64.b64decode(found.value, validate=True), found.scale))


def _bits(length: int) -> Convert:
    return lambda raw: quoted(bits(int.from_bytes(_bytes(raw), "little"), length))


_date: Final = _made(day)
_DATE: Final[tuple[str, Convert | None]] = ("date", _date)
_MILLIS: Final[tuple[str, Convert | None]] = ("timestamp", _made(lambda value: instant(value * 1000)))
_CLOCK: Final[tuple[str, Convert | None]] = ("string", _made(lambda value: clock(value * 1000)))
_NAMED: Final[Mapping[str, tuple[str, Convert | None]]] = {
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
    "io.debezium.time.ZonedTimestamp": ("timestamp", None),
    "io.debezium.data.Json": ("json", as_kind("json")),
}
_PLAIN: Final = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "bigint",
    "float": "double",
    "float32": "double",
    "double": "double",
    "float64": "double",
    "string": "string",
    "bytes": "string",
}
