"""Values of others, as people may read them: times of any size, text that commands no terminal. Pure.

A producer or a master may give microseconds for milliseconds, or have a clock that is wrong, and Python's own times end
with the year 9999. So every time that comes from data, an integer since 1970, UTC, becomes a `datetime` or text here.
Nothing raises for any integer.

Field names, remarks of brokers, topics and bodies come from people and programs that logtwin knows nothing of. On a
terminal a control character could clear the screen, or forge a line; one that turns the direction of writing makes a
text look like another. Whatever people read goes through `visible`. What programs read (JSON, CSV, Parquet) does not:
there a value stays what it is.
"""

from __future__ import annotations

import re
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


_CONTROLS: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""The controls of C0 and C1, but for the line feed, those of writing direction, Unicode's line breaks, lone halves of
characters."""


def visible(text: str, *, lines: bool = False) -> str:
    """`text` with its control characters as escapes, such as ``\\x1b``; with `lines` it may have more than one line."""
    shown = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)
    return shown if lines else shown.replace("\n", r"\n")
