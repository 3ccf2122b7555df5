"""Numbers and times that producers write, against Python's fractions and its calendar."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.formats.numbers import decimal_of, double_of, is_integer, is_number, long_of
from sinks.typed.formats.times import day_of, instant_us
from tests.growth import MOST, growth

DIGITS = st.text("0123456789", max_size=40) | st.text("0", max_size=40)
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.just("0") | st.builds("{}{}".format, st.sampled_from("123456789"), DIGITS),
    st.just("") | st.builds(".{}{}".format, st.sampled_from("0123456789"), DIGITS),
    st.just("")
    | st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 60)),
)


@given(NUMBERS, st.integers(1, 38), st.integers(0, 38))
def test_a_decimal_is_the_number_to_its_last_digit_or_none(text: str, precision: int, scale: int) -> None:
    scale = min(scale, precision)
    value = Fraction(text)
    fits = (value * 10**scale).denominator == 1 and abs(value) * 10**scale < 10**precision
    found = decimal_of(text.encode(), precision, scale)
    assert (found is not None) == fits
    assert found is None or Fraction(found) == value


@given(NUMBERS)
def test_a_double_is_the_next_one_and_of_an_integer_the_same(text: str) -> None:
    assert is_number(text.encode())
    found = double_of(text.encode())
    if is_integer(text.encode()):
        assert (found is not None) == (Fraction(float(text)) == Fraction(text))
    assert found is None or found == float(text)


@given(st.text("0123456789+-.eE_ \n\u0663infaINFA", max_size=8))
def test_nothing_else_is_a_number(text: str) -> None:
    """What Python takes for a number is either one of JSON, or none here."""
    is_ours = is_number(text.encode())
    assert is_ours == (_is_json(text))
    for read in (long_of, double_of, lambda one: decimal_of(one, 38, 4)):
        assert is_ours or read(text.encode()) is None


def _is_json(text: str) -> bool:
    try:
        return text == text.strip() and not isinstance(json.loads(text, parse_constant=str), str)
    except ValueError:
        return False


@given(st.datetimes(), st.integers(-1439, 1439), st.text("0123456789", max_size=12))
def test_a_time_is_cut_after_its_microsecond_and_lies_in_the_years_1_to_9999_of_utc(
    local: datetime, zone_minutes: int, finer: str
) -> None:
    text = f"{local.isoformat(timespec='microseconds')}{finer}{_zone(zone_minutes)}"
    micros = (local - datetime(1970, 1, 1)) // timedelta(microseconds=1) - zone_minutes * 60_000_000  # noqa: DTZ001
    found = instant_us(text)
    try:
        expected = local.replace(tzinfo=timezone(timedelta(minutes=zone_minutes))).astimezone(UTC)
    except OverflowError:
        assert found is None
        return
    assert found == micros
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found) == expected


def _zone(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"


def cents(text: bytes) -> object:
    return decimal_of(text, 38, 2)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (is_integer, lambda size: b"9" * size),
        (long_of, lambda size: b"9" * size),
        (double_of, lambda size: b"9" * size),
        (double_of, lambda size: b"0." + b"9" * size),
        (cents, lambda size: b"9" * size),
        (cents, lambda size: b"1e" + b"0" * size + b"1"),
        (cents, lambda size: b"1e" + b"0" * size + b"x"),
        (cents, lambda size: b"1e-" + b"9" * size),
        (cents, lambda size: b"0." + b"0" * size + b"1"),
        (cents, lambda size: b"1" + b"0" * size + b"x"),
        (instant_us, lambda size: "2026-11-25T10:00:00." + "9" * size + "x"),
        (day_of, lambda size: "2026-11-25" + "9" * size),
    ],
)
def test_a_long_text_takes_time_in_its_length(read: Callable[[Any], object], text: Callable[[int], Any]) -> None:
    assert growth(text, read) < MOST
