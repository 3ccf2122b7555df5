"""JSON values for formats that have more types than JSON. Pure.

bytes                   base64, with padding (RFC 4648)
timestamp, date         RFC 3339; outside the years 1 to 9999 the number itself, which is a misfit
NaN, infinite           "NaN", "Infinity", "-Infinity", as in protobuf's JSON: a misfit for a double
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from sinks.typed.formats.json_fields import DescribedFields, fields_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()


def described(value: Mapping[str, Any], kinds: Mapping[str, str]) -> DescribedFields:
    """The fields of a JSON object, with the kinds that its schema says. Raises NoObject."""
    return DescribedFields(fields_of(msgspec.json.encode(value)), kinds)


def text_of_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def instant(micros: int) -> str | int:
    """The JSON value of a time in microseconds since 1970, UTC."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        return micros


def day(days: int) -> str | int:
    """The JSON value of a date in days since 1970."""
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (OverflowError, ValueError):
        return days
