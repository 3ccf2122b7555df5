"""Numbers that producers write: whether a text is one, and its value. Pure, and linear in the length of the text.

A number is what JSON calls one (RFC 8259, section 6), in every format. Python's own constructors take more (`1_000`,
`٣`, `+7`, ` 1`), and an exponent of a few bytes can ask native code for more digits than there is memory. So a text is
checked here first, and what is handed on has few digits and a small exponent.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

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
    sign, whole, fraction, exponent_sign, exponent = (part or b"" for part in found.groups())
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
