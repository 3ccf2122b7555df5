"""What a column has of a value: exact numbers, and the calendar of Python, digit by digit. Slow, and short."""

import math
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

DIGITS = frozenset("0123456789")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_1_US = (date(1, 1, 1) - date(1970, 1, 1)).days * 86_400_000_000
YEAR_10000_US = ((date(9999, 12, 31) - date(1970, 1, 1)).days + 1) * 86_400_000_000


def value_of(kind: str, said: str, *, is_string: bool) -> Any:
    """The value of a JSON string or of another text of JSON; None where it does not fit. Times are in microseconds."""
    match kind:
        case "string":
            return said if is_string else None
        case "timestamp":
            return instant(said) if is_string else None
        case "date":
            return day(said) if is_string else None
        case "boolean":
            return {"true": True, "false": False}.get(said) if not is_string else None
        case _ if kind.startswith("decimal"):
            precision, scale = map(int, kind[8:-1].split(","))
            return decimal(said, precision, scale)
    return None if is_string else _number(kind, said)


def _number(kind: str, text: str) -> Any:
    if kind == "double":
        return double(text)
    whole = integer(text)
    if whole is None:
        return None
    if kind == "timestamp_ms":
        return in_years(whole * 1000) if fits(whole, 63) else None
    return whole if fits(whole, 31 if kind == "int" else 63) else None


def fits(whole: int, bits: int) -> bool:
    return -(1 << bits) <= whole < 1 << bits


def parts(text: str) -> tuple[str, str, str] | None:
    """The digits before the point, those behind it and the exponent of a number of JSON, each with its sign."""
    mantissa, mark, exponent = text.replace("E", "e").partition("e")
    whole, point, fraction = mantissa.removeprefix("-").partition(".")
    power = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    if not whole or set(whole) - DIGITS or (whole[0] == "0" and whole != "0"):
        return None
    if (point and not fraction) or set(fraction) - DIGITS or (mark and not power) or set(power) - DIGITS:
        return None
    return whole, fraction, exponent or "0"


def large(digits: str) -> int:
    """Python converts only 4,300 digits at once."""
    value = 0
    for at in range(0, len(digits), 4000):
        piece = digits[at : at + 4000]
        value = value * 10 ** len(piece) + int(piece)
    return value


def integer(text: str) -> int | None:
    found = parts(text)
    if found is None or set(text.removeprefix("-")) - DIGITS:
        return None
    return -large(found[0]) if text.startswith("-") else large(found[0])


def double(text: str) -> float | None:
    if parts(text) is None:
        return None
    value, whole = float(text), integer(text)
    if math.isinf(value) or (whole is not None and int(value) != whole):
        return None
    return value


def decimal(text: str, precision: int, scale: int) -> Fraction | None:
    found = parts(text)
    if found is None:
        return None
    whole, fraction, exponent = found
    digits = large(whole + fraction)
    if not digits:
        return Fraction(0)
    power = large(exponent.lstrip("+-")) * (-1 if exponent[0] == "-" else 1) - len(fraction)
    if abs(power) > len(text) + 100:
        return None  # no text has so many digits
    value = Fraction(-digits if text.startswith("-") else digits) * Fraction(10) ** power
    return value if (value * 10**scale).denominator == 1 and abs(value) * 10**scale < 10**precision else None


def in_years(micros: int) -> int | None:
    return micros if YEAR_1_US <= micros < YEAR_10000_US else None


def instant(text: str) -> int | None:
    """RFC 3339, in microseconds since 1970, UTC."""
    at, rest = _local(text[:19]), text[19:]
    if at is None:
        return None
    fraction = ""
    if rest[:1] == ".":
        fraction = rest[1 : 1 + next((n for n, one in enumerate(rest[1:]) if one not in DIGITS), len(rest) - 1)]
        rest = rest[1 + len(fraction) :]
        if not fraction:
            return None
    zone_minutes = _zone_minutes(rest)
    if zone_minutes is None:
        return None
    micros = (at - _EPOCH) // timedelta(microseconds=1) + int(fraction[:6].ljust(6, "0"))
    return in_years(micros - zone_minutes * 60_000_000)


def _local(text: str) -> datetime | None:
    shape = "dddd-dd-ddTdd:dd:dd"
    if len(text) != len(shape) or text[10] not in "Tt ":
        return None
    if any(one not in DIGITS if of == "d" else of != "T" and one != of for one, of in zip(text, shape, strict=True)):
        return None
    numbers = [int(text[start:end]) for start, end in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
    try:
        return datetime(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], tzinfo=UTC)
    except ValueError:
        return None


def _zone_minutes(text: str) -> int | None:
    if text in ("Z", "z"):
        return 0
    digits = text[1:3] + text[-2:]
    if text[:1] not in ("+", "-") or set(digits) - DIGITS or text not in (text[0] + digits, _colon(text[0] + digits)):
        return None
    hours, minutes = int(digits[:2]), int(digits[2:])
    if len(digits) != 4 or hours > 23 or minutes > 59:
        return None
    return (hours * 60 + minutes) * (-1 if text[0] == "-" else 1)


def _colon(zone: str) -> str:
    return f"{zone[:3]}:{zone[3:]}"


def day(text: str) -> date | None:
    if len(text) != 10 or text[4] + text[7] != "--" or set(text[:4] + text[5:7] + text[8:]) - DIGITS:
        return None
    try:
        return date(int(text[:4]), int(text[5:7]), int(text[8:]))
    except ValueError:
        return None
