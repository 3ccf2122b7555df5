"""Times as data has them: integers since 1970, UTC, of any size. Pure; nothing here raises for any integer.

A producer or a master may give microseconds for milliseconds, or have a clock that is wrong. Python's own times end
with the year 9999. So every time that comes from data becomes a `datetime`, or text for a person or a program, here.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_YEARS: Final = 400
_CYCLE_US: Final = 146_097 * 86_400 * 1_000_000
"""The calendar repeats after 400 years."""
_YEAR_CHARS: Final = 4


def instant(at_us: int) -> datetime | None:
    """Return the time `at_us` microseconds after 1970, UTC; None outside of the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return None


def iso(at_us: int, timespec: str = "auto") -> str:
    """Return the time `at_us` microseconds after 1970 as ISO 8601, UTC; `timespec` as of `datetime.isoformat`.

    A year that has not four digits has a sign, as ISO 8601 has it: ``+58875-03-01T00:00:00+00:00``.
    """
    cycles, rest_us = divmod(at_us, _CYCLE_US)
    at = _EPOCH + timedelta(microseconds=rest_us)
    year = at.year + _CYCLE_YEARS * cycles
    written = f"{year:04}" if MINYEAR <= year <= MAXYEAR else f"{year:+05}"
    return written + at.isoformat(timespec=timespec)[_YEAR_CHARS:]


def moment(at_us: int) -> str:
    """Return the time for a person, to the second: ``2026-11-21 14:02:11 UTC``."""
    day, _, clock = iso(at_us, "seconds").partition("T")
    return f"{day} {clock.partition('+')[0]} UTC"
