"""Canal's flat messages (`com.alibaba.otter.canal.protocol.FlatMessage`, JSON). Pure.

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

A message has no position. In GTID mode `gtid` has all transactions so far: how many they are is the order.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from sinks.typed.columns import MOST_DIGITS
from sinks.typed.formats.changes import Change, Wanted, as_kind, bits, part, placed, quoted
from sinks.typed.formats.json_fields import Fields, NoObject, fields_of, string_of

_NOT_CANAL: Final = "not_canal"
_WITHOUT_ROWS: Final = frozenset(
    ("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT")
)
_ROWS: Final = frozenset(("INSERT", "UPDATE", "DELETE"))

_TYPE: Final = re.compile(r"\s*([a-z]+)(?:\s+(?:precision|varying))?\s*(?:\((.*)\))?([^)]*)", re.I | re.S)
_MEMBER: Final = re.compile(r"'((?:[^']|'')*+)'")
_INTEGERS: Final = {"tinyint": "int", "smallint": "int", "mediumint": "int", "int": "int", "integer": "int",
                    "bigint": "bigint", "year": "int"}  # fmt: skip
_UNSIGNED: Final = {"int": "bigint", "integer": "bigint", "bigint": "decimal(20,0)"}
_OTHERS: Final = {"float": "double", "double": "double", "real": "double", "date": "date", "datetime": "timestamp",
                  "timestamp": "timestamp", "json": "json"}  # fmt: skip
_DECIMALS: Final = ("decimal", "numeric", "dec", "fixed")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring",
                 "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")  # fmt: skip

_Convert: TypeAlias = Callable[[str], msgspec.Raw]


class Canal:
    """A reader of flat messages that gives the wanted rows."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._declared = {name: _of_kind(kind, wanted.time_zone) for name, kind in wanted.kinds.items()}

    def __call__(self, body: bytes | None) -> list[Change]:
        """The rows of a message; none if it has none, or is of another table. Raises NoObject."""
        fields = fields_of(body)
        type_ = part(fields, "type", str, _NOT_CANAL)
        if type_ is None or "database" not in fields:
            raise NoObject(_NOT_CANAL, f"no type and database, but {', '.join(fields) or 'nothing'}")
        database, table = part(fields, "database", str, _NOT_CANAL), part(fields, "table", str, _NOT_CANAL)
        if not self._wanted.has(database, table):
            return []
        if type_ == "TRUNCATE":
            return [Change({}, {}, empties=True, order=self._order(fields))]
        if part(fields, "isDdl", bool, _NOT_CANAL) or type_ in _WITHOUT_ROWS:
            return []
        if type_ not in _ROWS:
            raise NoObject(_NOT_CANAL, f"type {type_}")
        return self._rows(fields, type_)

    def _rows(self, fields: Fields, type_: str) -> list[Change]:
        rows = part(fields, "data", list[Fields], _NOT_CANAL)
        if not rows:  # with binlog_format = STATEMENT
            raise NoObject("no_rows", f"{type_} without data: {bytes(fields.get('sql', b'')).decode()}")
        types = part(fields, "mysqlType", dict[str, str], _NOT_CANAL) or {}
        before = part(fields, "old", list[Fields | None], _NOT_CANAL) or [None] * len(rows)
        if len(before) != len(rows):
            raise NoObject(_NOT_CANAL, f"{len(rows)} rows, but {len(before)} in old")
        order = self._order(fields)
        found: list[Change] = []
        for row, old in zip(rows, before, strict=True):
            if type_ == "UPDATE" and old is not None and self._wanted.is_moved(old, row):
                found.append(self._change({**row, **old}, types, order, deletes=True))
            found.append(self._change(row, types, order, deletes=type_ == "DELETE"))
        return found

    def _order(self, fields: Fields) -> str | None:
        return self._wanted.ordered(_order(fields), "no gtid")

    def _change(self, row: Fields, types: dict[str, str], order: str | None, *, deletes: bool) -> Change:
        values: Fields = {}
        kinds: dict[str, str] = {}
        for name, raw in row.items():
            said = types.get(name)
            if said is None:
                convert: _Convert | None = self._declared.get(name)
            else:
                kinds[name], convert = _of_type(said, self._wanted.time_zone)
            text = string_of(bytes(raw))
            values[name] = raw if text is None or convert is None else convert(text)
        return Change(values, kinds, deletes=deletes, order=order)


@lru_cache(maxsize=1024)
def _of_type(text: str, time_zone: str) -> tuple[str, _Convert]:
    """The kind of column for a type of MySQL, and what makes a value of Canal's text."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return "string", quoted
    word, inside, behind = found[1].lower(), found[2] or "", found[3].lower()
    if word in _INTEGERS:
        kind = _UNSIGNED.get(word, "int") if "unsigned" in behind else _INTEGERS[word]
    elif word in _DECIMALS:
        kind = _decimal(inside)
    elif word == "bit":
        return _bit(int(inside) if inside.isdigit() else 1)
    elif word in ("enum", "set"):
        members = [one.replace("''", "'") for one in _MEMBER.findall(inside)]
        return "string", _enum(members) if word == "enum" else _set(members)
    elif word in _BYTES:
        return "string", _base64
    else:
        kind = _OTHERS.get(word, "string")
    return kind, _of_kind(kind, time_zone if word == "timestamp" else "UTC")


def _of_kind(kind: str, time_zone: str) -> _Convert:
    return lambda text: as_kind(kind, text, time_zone)


def _decimal(inside: str) -> str:
    digits, _, scale = (one.strip() for one in (inside or "10").partition(","))
    return f"decimal({digits},{scale or 0})" if digits.isdigit() and int(digits) <= MOST_DIGITS else "string"


def _bit(length: int) -> tuple[str, _Convert]:
    if length == 1:
        return "boolean", _of_kind("boolean", "UTC")
    return "string", lambda text: quoted(bits(int(text), length) if _is_index(text) else text)


def _enum(members: list[str]) -> _Convert:
    """Of a number the member, from 1 on; 0 is what MySQL has for a value that is none, the empty text."""
    texts = ["", *members]
    return lambda text: quoted(texts[int(text)] if _is_index(text) and int(text) < len(texts) else text)


def _set(members: list[str]) -> _Convert:
    def convert(text: str) -> msgspec.Raw:
        if not _is_index(text) or int(text) >> len(members):
            return quoted(text)
        return quoted(",".join(one for number, one in enumerate(members) if int(text) >> number & 1))

    return convert


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def _base64(text: str) -> msgspec.Raw:
    try:
        return quoted(base64.b64encode(text.encode("latin-1")).decode())
    except UnicodeEncodeError:  # somebody else wrote it, in another way
        return quoted(text)


def _order(fields: Fields) -> str | None:
    gtid = part(fields, "gtid", str, _NOT_CANAL)
    count = transactions(gtid or "")
    at_ms = part(fields, "es", int, _NOT_CANAL) or 0
    return None if count is None else placed([(count, 19)], at_ms)


_MARIADB: Final = re.compile(r"[0-9]+-[0-9]+-([0-9]+)")
_INTERVALS: Final = re.compile(r"[0-9a-f-]{36}((?::[0-9]+(?:-[0-9]+)?)+)", re.I)


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
