"""What is a number of JSON, and how long that takes to tell; which one it is: `tests/fuzz/bodies.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.formats.scalars import day_of, decimal_of, double_of, instant_us, is_integer, is_number, long_of
from tests.growth import MOST, growth


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
