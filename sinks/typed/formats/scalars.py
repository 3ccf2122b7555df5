"""Numbers and times that producers write: whether a text is one, and its value. Pure, and linear in its length.

A number is what JSON calls one (RFC 8259, section 6), in every format. Python's own constructors take more (`1_000`,
`٣`, `+7`, ` 1`), and an exponent of a few bytes can ask native code for more digits than there is memory. So a text is
checked here first, and what is handed on has few digits and a small exponent.

A time is that of RFC 3339, with its zone; a blank may stand for its `T`, and the colon of its zone may be missing. What
is finer than a microsecond is cut off. A leap second is refused: a column cannot tell it from the next one. In UTC a
time lies in the years 1 to 9999: readers of Delta tables have no others, and one of them would fail a whole query.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

EXACT: Final = 1 << 53
"""A double can represent every integer up to here."""
_LONG: Final = 1 << 63

_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*+)")
_NUMBER: Final = re.compile(rb"(-?)(0|[1-9][0-9]*+)(?:\.([0-9]++))?(?:[eE]([+-]?)(?=[0-9])0*+([0-9]*+))?")
_LONG_CHARS: Final = len(str(-_LONG))
_DOUBLE_CHARS: Final = len(str(-(10**308)))
"""No longer integer is a finite double."""
_EXPONENT_DIGITS: Final = 18
"""No body is so long that its digits could make up for a longer exponent."""


def is_number(text: bytes) -> bool:
    return _NUMBER.fullmatch(text) is not None


def is_integer(text: bytes) -> bool:
    """Whether a number is written as an integer: 1, and not 1.0 or 1e0."""
    return _INTEGER.fullmatch(text) is not None


def long_of(text: bytes) -> int | None:
    """The value of an integer of at most 64 bits; None for any other text."""
    if len(text) > _LONG_CHARS or not is_integer(text):
        return None
    value = int(text)
    return value if -_LONG <= value < _LONG else None


def double_of(text: bytes) -> float | None:
    """The double next to a number; None if it is infinite, or if the number is an integer and the double is another."""
    if not is_number(text):
        return None
    value = float(text)
    if math.isinf(value) or (is_integer(text) and (len(text) > _DOUBLE_CHARS or int(value) != int(text))):
        return None
    return value


def decimal_of(text: bytes, precision: int, scale: int) -> Decimal | None:
    """The value of a number, with `scale` digits after the point; None if it needs more, or more than `precision`."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = found.groups(b"")
    if found[5] is None and len(fraction) <= scale and len(whole) <= precision - scale:
        return Decimal(text.decode())  # as most are
    digits = (whole + fraction).lstrip(b"0")
    if not digits:
        return Decimal(0)
    if len(exponent) > _EXPONENT_DIGITS:
        return None
    significant = digits.rstrip(b"0")
    # the value is `significant` times ten to the power of this
    power = int(exponent_sign + (exponent or b"0")) - len(fraction) + len(digits) - len(significant)
    if -power > scale or len(significant) + power + scale > precision:
        return None
    return Decimal(f"{(sign + significant).decode()}e{power}")


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
LEAST_US: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The first microsecond of the year 1."""
GREATEST_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The last microsecond of the year 9999."""
_DAY_US: Final = 86_400_000_000

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(
    rf"({_DATE.pattern})[Tt ]((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])(?:(\.[0-9]{{1,6}}+)[0-9]*+)?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"
)


def instant_us(text: str) -> int | None:
    """A time in microseconds since 1970, UTC; None if the text is none, or one that a column cannot have."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, time, fraction, zone = found.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{time}{fraction or ''}{zone.upper()}")
    except ValueError:  # there is no such day
        return None
    return in_years((at - _EPOCH) // _MICROSECOND)


def in_years(micros: int) -> int | None:
    """A time in microseconds since 1970, UTC; None outside the years 1 to 9999."""
    return micros if LEAST_US <= micros <= GREATEST_US else None


def are_in_years(times: pa.Array) -> pa.Array:
    """Whether each of these dates, or timestamps in microseconds, lies in the years 1 to 9999; null of a null."""
    is_date = pa.types.is_date32(times.type)
    numbers, unit_us = (times.cast(pa.int32()), _DAY_US) if is_date else (times.cast(pa.int64()), 1)
    return pc.and_(pc.greater_equal(numbers, LEAST_US // unit_us), pc.less_equal(numbers, GREATEST_US // unit_us))


def day_of(text: str) -> date | None:
    """A date, `2026-11-25`; None if the text is none."""
    if _DATE.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:  # there is no such day
        return None
