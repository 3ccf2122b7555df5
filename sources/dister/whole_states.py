"""JSON that dister writes as a whole: its service file, its data file, its list of nodes. Pure.

It has no length and no checksum. Invalid JSON is a half-written file, because dister truncates such a file and then
writes it; the next look will tell. JSON of another shape is an error for good.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from sources.errors import MasterSilent, ProtocolViolation

_ESCAPED: Final = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}  # as Go's encoder does, anywhere


def decode(data: bytes, what: str) -> Any:
    """Return the value in `data`. Raises MasterSilent, naming `what`, for invalid JSON."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError and a JSONDecodeError are ValueErrors
        raise MasterSilent(
            f"{what} is not whole",
            expected="JSON in UTF-8",
            found=f"{len(data)} bytes: {error}",
            hint="dister rewrites it in place; if it stays so, it is damaged.",
        ) from error


def encode(value: object) -> bytes:
    """Encode `value` byte for byte as Go's encoder does: keys sorted, no spaces."""
    return sorted_text(value).translate(_ESCAPED).encode()


def sorted_text(value: object) -> str:
    """Return `value` as JSON: the same text for the same value, whatever the order of its keys."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def other_shape(what: str, expected: str, found: object) -> ProtocolViolation:
    """Return the error for `what` being JSON, but not what dister writes there."""
    return ProtocolViolation(
        f"{what} has another shape",
        expected=expected,
        found=f"{found!r:.200}",
        hint="Check that this is dister's, version 1.6.",
    )


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
