"""Times and dates that producers write, in every format. Pure.

A time is that of RFC 3339, with its zone; a blank may stand for its `T`, and the colon of its zone may be missing. What
is finer than a microsecond is cut off. A leap second is refused: a column cannot tell it from the next one. In UTC a
time lies in the years 1 to 9999: readers of Delta tables have no others, and one of them would fail a whole query.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

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
