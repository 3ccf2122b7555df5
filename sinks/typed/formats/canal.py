"""Canal's flat messages (`com.alibaba.otter.canal.protocol.FlatMessage`, JSON); its packets say the same. Pure.

One message has the rows of one event of MySQL's binary log: `data`, each as it is now, or was when it was deleted, and
`old`, what an update has changed in it. All values are texts, of the types in `mysqlType`:

    mysqlType                      kind of the column      value
    tinyint to int                 int; int unsigned is a bigint
    bigint                         bigint; unsigned decimal(20,0)
    decimal(p,s)                   decimal(p,s)            beyond 38 digits a string
    float, double                  double
    date                           date
    datetime                       timestamp               has no zone: its clock is taken for UTC
    timestamp                      timestamp               Canal writes it by the clock of its own zone (`time_zone`)
    time, char, varchar, text, …   string
    year                           int
    bit(1), bit(n)                 boolean, string         its digits; Canal has the number
    enum, set                      string                  its members, with commas; Canal has the number, or the bits
    json                           json
    blob, binary, varbinary        string                  base64; Canal has a character of ISO 8859-1 for each byte

Others write such messages with values of JSON's own types, or without `mysqlType`: then a value is taken as it is, and
a text as a column asks for it that is declared.

A flat message has no position. In GTID mode `gtid` has all transactions so far: how many they are is the order. A
packet (`sinks/typed/formats/canal_packet.py`) has positions in the binary log, too, which are the order without GTIDs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from sinks.typed.formats.changes import Change, Convert, WantedRows, as_kind, bits, placed, quoted
from sinks.typed.formats.json_fields import Fields, NoObject, decoded_by, given, not_too_deep, string_of
from sinks.typed.kinds import MOST_DIGITS, is_nested

NOT_CANAL: Final = "not_canal"
PACKET: Final = (b"\x08", b"\x10", b"\x18")
"""What a packet begins with: the number and type of one of its fields up to its own type, which each has."""
_WITHOUT_ROWS: Final = frozenset(
    ("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT")
)
ROWS: Final = frozenset(("INSERT", "UPDATE", "DELETE"))

_TYPE: Final = re.compile(r"\s*([a-z]+)(?:\s+(?:precision|varying))?\s*(?:\((.*)\))?([^)]*)", re.I | re.S)
_DIGITS: Final = re.compile(r"\s*([0-9]{1,4})\s*(?:,\s*([0-9]{1,4})\s*)?")
_MEMBER: Final = re.compile(r"'((?:[^']|'')*+)'")
_INTEGERS: Final = {"tinyint": "int", "smallint": "int", "mediumint": "int", "int": "int", "integer": "int",
                    "bigint": "bigint", "year": "int"}  # fmt: skip
_UNSIGNED: Final = {"int": "bigint", "integer": "bigint", "bigint": "decimal(20,0)"}
_OTHERS: Final = {"float": "double", "double": "double", "real": "double", "date": "date", "datetime": "timestamp",
                  "timestamp": "timestamp", "json": "json"}  # fmt: skip
_DECIMALS: Final = ("decimal", "numeric", "dec", "fixed")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring",
                 "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")  # fmt: skip


class FlatMessage(msgspec.Struct):
    type: str
    database: str | None
    table: str | None = None
    isDdl: bool | None = None
    data: list[Fields] | None = None
    old: list[Fields | None] | None = None
    mysqlType: msgspec.Raw = msgspec.Raw(b"null")
    gtid: str | None = None
    es: int | None = None
    sql: str | None = None


_MESSAGE: Final = msgspec.json.Decoder(FlatMessage)
_TYPES: Final = msgspec.json.Decoder(dict[str, str] | None)
_SIZE_DIGITS: Final = 3  # BINARY(255), BIT(64)
Position: TypeAlias = tuple[int, int, int]
"""The number of a binary log, the offset in it, the number of the server."""
_Columns: TypeAlias = tuple[Mapping[str, str], Sequence[tuple[str, Convert]]]
"""The kinds of columns by field, and the fields whose values are converted."""


def has_rows(type_: str, is_ddl: bool | None) -> bool:
    """Whether messages of a type other than ``TRUNCATE`` have rows. Raises NoObject if Canal has no such type."""
    if is_ddl or type_ in _WITHOUT_ROWS:
        return False
    if type_ not in ROWS:
        raise NoObject(NOT_CANAL, f"type {type_}")
    return True


class Canal:
    """A reader of messages that gives the wanted rows."""

    def __init__(self, wanted: WantedRows) -> None:
        self.wanted = wanted

    def __call__(self, body: bytes | None) -> list[Change]:
        """The rows of a flat message; none if it has none, or is of another table. Raises NoObject."""
        message = decoded_by(_MESSAGE, body, NOT_CANAL)
        if not self.wanted.has(message.database, message.table):
            return []
        not_too_deep(given(body))
        return self.rows(message)

    def rows(self, message: FlatMessage, position: Position | None = None) -> list[Change]:
        """The rows of a message of a wanted table, which may say where it stands. Raises NoObject."""
        at_us = None if message.es is None else message.es * 1000
        if message.type == "TRUNCATE":
            return [Change({}, {}, empties=True, order=self._order(message, position), at_us=at_us)]
        if not has_rows(message.type, message.isDdl):
            return []
        rows, before = message.data, message.old
        if not rows:  # with binlog_format = STATEMENT
            raise NoObject("no_rows", f"{message.type} without data: {message.sql}")
        if before and len(before) != len(rows):
            raise NoObject(NOT_CANAL, f"{len(rows)} rows, but {len(before)} in old")
        columns = _columns(bytes(message.mysqlType), self.wanted)
        is_gone = message.type == "DELETE"
        found: list[Change] = []
        for number, (row, old) in enumerate(zip(rows, before or [None] * len(rows), strict=True)):
            order = self._order(message, position, number)
            if message.type == "UPDATE" and old is not None and self.wanted.is_moved(old, row):
                found.append(_change({**row, **old}, columns, order, at_us, deletes=True))
            found.append(_change(row, columns, order, at_us, deletes=is_gone))
        return found

    def _order(self, message: FlatMessage, position: Position | None, row: int = 0) -> str | None:
        if not self.wanted.needs_order:
            return None
        count, order = transactions(message.gtid or ""), None
        if count is not None:
            order = placed([(count, 19)], message.es or 0, server=0)
        elif position is not None:
            file, offset, server = position
            order = placed([(file, 10), (offset, 19), (row, 10)], message.es or 0, server or None)
        return self.wanted.ordered(order, "no gtid")


def _change(row: Fields, columns: _Columns, order: str | None, at_us: int | None, *, deletes: bool) -> Change:
    kinds, converted = columns
    for name, convert in converted:
        raw = row.get(name)
        if raw is not None and bytes(raw)[:1] == b'"':
            row[name] = convert(raw)
    return Change(row, kinds, deletes=deletes, order=order, at_us=at_us)


@lru_cache(maxsize=256)
def _columns(mysql_types: bytes, wanted: WantedRows) -> _Columns:
    """The columns by the types that a message says, or as they are declared where it says none. Raises NoObject."""
    try:
        types = _TYPES.decode(mysql_types) or {}
    except msgspec.ValidationError as error:
        raise NoObject(NOT_CANAL, f"mysqlType: {error}") from None
    said = {name: _of_type(one, wanted.time_zone) for name, one in types.items()}
    declared = {
        name: as_kind(kind, wanted.time_zone) for name, kind in wanted.kinds if name not in said or is_nested(kind)
    }
    converts = {**{name: convert for name, (_, convert) in said.items()}, **declared}
    return (
        {name: kind for name, (kind, _) in said.items()},
        [(name, convert) for name, convert in converts.items() if convert is not None],
    )


def _of_type(text: str, time_zone: str) -> tuple[str, Convert | None]:
    """The kind of column for a type of MySQL, and what makes a value of Canal's text."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return "string", None
    word, inside, behind = found[1].lower(), found[2] or "", found[3].lower()
    if word in _INTEGERS:
        kind = _UNSIGNED.get(word, "int") if "unsigned" in behind else _INTEGERS[word]
    elif word in _DECIMALS:
        kind = _decimal(inside)
    elif word == "bit":
        return _bit(_size(inside) or 1)
    elif word in ("enum", "set"):
        members = [one.replace("''", "'") for one in _MEMBER.findall(inside)]
        return "string", _of_text(_enum(members) if word == "enum" else _set(members))
    elif word in _BYTES:
        # the binary log leaves out the zeros at the end of a BINARY(n)
        return "string", _of_text(_base64(_size(inside) if word == "binary" else 0))
    else:
        kind = _OTHERS.get(word, "string")
    return kind, as_kind(kind, time_zone if word == "timestamp" else "UTC")


def _of_text(convert: Callable[[str], str]) -> Convert:
    return lambda raw: quoted(convert(string_of(bytes(raw)) or ""))


def _size(inside: str) -> int:
    """The size of a type, unless it is larger than MySQL has any."""
    return int(inside) if inside.isascii() and inside.isdigit() and len(inside) <= _SIZE_DIGITS else 0


def _decimal(inside: str) -> str:
    found = _DIGITS.fullmatch(inside or "10")
    digits, scale = (0, 0) if found is None else (int(found[1]), int(found[2] or 0))
    return f"decimal({digits},{scale})" if 0 < digits <= MOST_DIGITS and scale <= digits else "string"


def _bit(length: int) -> tuple[str, Convert | None]:
    if length == 1:
        return "boolean", as_kind("boolean")
    return "string", _of_text(lambda text: bits(int(text), length) if _is_index(text) else text)


def _enum(members: list[str]) -> Callable[[str], str]:
    """Of a number the member, from 1 on; 0 is what MySQL has for a value that is none, the empty text."""
    texts = ["", *members]
    return lambda text: texts[int(text)] if _is_index(text) and int(text) < len(texts) else text


def _set(members: list[str]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if not _is_index(text) or int(text) >> len(members):
            return text
        return ",".join(one for number, one in enumerate(members) if int(text) >> number & 1)

    return convert


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def _base64(size: int) -> Callable[[str], str]:
    def convert(text: str) -> str:
        try:
            return base64.b64encode(text.encode("latin-1").ljust(size, b"\0")).decode()
        except UnicodeEncodeError:  # somebody else wrote it, in another way
            return text

    return convert


_MARIADB: Final = re.compile(r"[0-9]+-[0-9]+-([0-9]+)")
_INTERVALS: Final = re.compile(r"[0-9a-f-]{36}((?::[0-9]+(?:-[0-9]+)?)+)", re.I)


@lru_cache(maxsize=1)  # the rows of a message have the same
def transactions(gtids: str) -> int | None:
    """How many transactions are in a set of GTIDs, of MySQL (`uuid:1-5:7,…`) or MariaDB (`0-1-270,…`); None of none.

    It grows with each, whichever server of a replicated group has it.
    """
    total = 0
    parts = [one.strip() for one in gtids.split(",") if one.strip()]
    for one in parts:
        if (of_mariadb := _MARIADB.fullmatch(one)) is not None:
            total += int(of_mariadb[1])
        elif (of_mysql := _INTERVALS.fullmatch(one)) is not None:
            for interval in of_mysql[1][1:].split(":"):
                first, _, last = interval.partition("-")
                total += int(last or first) - int(first) + 1
        else:
            return None
    return total if parts else None
