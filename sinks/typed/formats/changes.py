"""What the formats of change events share: rows of a database's table, which are there or gone. Pure.

A message has any number of rows, in the order in which the database changed them. If a row's key has changed, the row
with the old key is gone, and there is one with the new key. Messages of other tables, and those that bring no rows, are
passed by. A `TRUNCATE` is a row without fields: all older ones go.

An event's place at its source is a text that sorts as the source does: the position, zero-padded, then the time at
which the source says that it happened, in milliseconds, then the number of its server, if it is known. Only positions
of one server can be compared (`sinks/typed/step/newest.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from sinks.typed.formats.json_fields import DescribedFields, Fields, NoObject, not_too_deep, string_of
from sinks.typed.formats.scalars import is_number
from sinks.typed.kinds import is_nested
from sinks.typed.patterns import is_meant

_NO_POSITION: Final = "no_position"
_NULL: Final = b"null"
_WITHOUT_ZONE: Final = re.compile(rb'"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"')
_UTC: Final = "UTC"
_BOOLEANS: Final = {b"0": msgspec.Raw(b"false"), b"1": msgspec.Raw(b"true")}
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_LAST_US: Final = 253_402_300_799_999_999
"""The end of the year 9999."""

Convert: TypeAlias = Callable[[msgspec.Raw], msgspec.Raw]
"""Makes of an event's value what a body of JSON would have."""


class Change(DescribedFields):
    """A row of the source's table; one that `deletes` is gone, and has at least its key; one that `empties`, every row.

    `order` is its place at the source, `at_us` when the source made it, in microseconds since 1970; None if that is not
    known, or no time that a table can have. `unfit` has the fields that the event does not tell, each with reason and
    text.
    """

    def __init__(
        self,
        fields: Fields,
        kinds: Mapping[str, str],
        *,
        deletes: bool = False,
        empties: bool = False,
        order: str | None = None,
        at_us: int | None = None,
        unfit: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(fields, kinds)
        self.deletes = deletes
        self.empties = empties
        self.order = order
        self.at_us = at_us if at_us is not None and 0 < at_us <= _LAST_US else None
        self.unfit = unfit or {}


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which rows a typed table wants: of `table` in `database`, names or patterns; `key` are the fields of its key.

    `kinds` are declared fields, each with the kind of its column. Times without a zone are those of `time_zone`. With
    `needs_order` each event has to say where it stands at its source.
    """

    database: str
    table: str
    key: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...] = ()
    time_zone: str = _UTC
    needs_order: bool = False

    def has(self, database: str | None, *table: str | None) -> bool:
        """Whether these rows are wanted; a table may have several names."""
        return is_meant(database or "", (self.database,)) and any(is_meant(one or "", (self.table,)) for one in table)

    def is_moved(self, old: Fields | None, row: Fields) -> bool:
        """Whether an update has changed the key: `old` has what was there before, of the changed fields at least."""
        return old is not None and any(
            name in old and bytes(old[name]) not in (_NULL, bytes(row.get(name, _NULL))) for name in self.key
        )

    @staticmethod
    def ordered(order: str | None, found: str) -> str:
        """`order`, for a table that needs it. Raises NoObject if there is none."""
        if order is None:
            raise NoObject(_NO_POSITION, f'{found}: order = "log" takes events in the order of their log')
        return order


def placed(position: Sequence[tuple[int, int]], at_ms: int, server: int | None = None) -> str:
    """An event's place at its source: numbers, the most significant first, each with its greatest count of digits.

    No server has the number 0: it stands for positions that are those of all servers alike.
    """
    numbers = ".".join(f"{number:0{digits}}" for number, digits in position)
    return f"{numbers} {max(0, at_ms):016} {'' if server is None else server}".rstrip()


def file_number(name: str) -> int | None:
    """The number of a binary log: 3 of ``mysql-bin.000003``."""
    number = name.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def quoted(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(text))


def as_kind(kind: str, time_zone: str = _UTC) -> Convert | None:
    """What makes of a text what a body of JSON would have for such a column; any other value stays as it is.

    None if that is the text itself.
    """
    if kind in ("int", "bigint", "double") or kind.startswith("decimal"):
        return _number
    if kind == "timestamp":
        return partial(_instant, time_zone)
    return as_json if is_nested(kind) else {"boolean": _boolean, "json": as_json}.get(kind)


def _number(raw: msgspec.Raw) -> msgspec.Raw:
    text = bytes(raw)[1:-1]  # of a text without escapes: a number has none
    return msgspec.Raw(text) if is_number(text) else raw


def _boolean(raw: msgspec.Raw) -> msgspec.Raw:
    return _BOOLEANS.get(bytes(raw).strip(b'"'), raw)


def as_json(raw: msgspec.Raw) -> msgspec.Raw:
    """The JSON that a text has."""
    text = (string_of(bytes(raw)) or "").encode()
    try:
        return msgspec.Raw(bytes(_RAW.decode(not_too_deep(text))))
    except (msgspec.DecodeError, NoObject):  # it stays a text
        return raw


def _instant(time_zone: str, raw: msgspec.Raw) -> msgspec.Raw:
    """With its zone; where clocks are set back, the first of the two."""
    text = bytes(raw)
    if _WITHOUT_ZONE.fullmatch(text) is None:
        return raw
    if time_zone == _UTC:
        return msgspec.Raw(text[:-1] + b'Z"')
    try:
        at = datetime.fromisoformat(text[1:20].decode()).replace(tzinfo=ZoneInfo(time_zone))
    except ValueError:  # there is no such day
        return raw
    offset = f"{at:%z}"
    return msgspec.Raw(text[:-1] + f'{offset[:3]}:{offset[3:5]}"'.encode())


def bits(number: int, length: int) -> str:
    """A bit string as its digits, the most significant first."""
    return f"{number:0{length}b}"


def clock(micros: int) -> str:
    """A time of day, or a span of time, as databases write it: 12:34:56, -01:00:00.500000."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}" if fraction else text
