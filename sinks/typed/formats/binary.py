"""What Avro and protobuf share: JSON values for types that JSON has not, and zig-zag integers. Pure.

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


_LAST: Final = 63
"""The bits of a 64-bit number before its last byte, which holds only one more."""


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends. Raises IndexError at the end of `data`, ValueError beyond 64 bits."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        if shift == _LAST and byte > 1:
            raise ValueError("a number of more than 64 bits")
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
