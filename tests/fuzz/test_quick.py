"""Some cases of each target in every run of the suite; an hour of them is tests/soak/test_fuzz.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from sinks.typed.formats import json_fields, scalars
from sources.rocketmq.format import properties
from tests.fuzz import bodies, records
from tests.fuzz.__main__ import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_a_named_error_or_the_right_rows(target: str) -> None:
    for number in range(40):
        TARGETS[target](random.Random(f"{target}/{number}"))  # again: python -m tests.fuzz <target> --seed <number>


@pytest.mark.nightly
def test_it_finds_what_a_long_number_did() -> None:
    """With the conversion that ended logs a case fails soon: so the generators do write such properties."""
    with patch.object(properties, "_java_int", int), pytest.raises((AssertionError, ValueError)):
        for number in range(300):
            records.check(random.Random(f"records/{number}"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("module", "name", "without"),
    [
        (scalars, "is_integer", lambda text: len(text) < 40 and text.lstrip(b"-").isdigit()),
        (json_fields, "in_years", lambda micros: micros),
        (json_fields, "_within", lambda values, least, greatest: values),
        (json_fields, "day_of", date.fromisoformat),
    ],
)
def test_it_finds_values_that_nothing_checks(module: ModuleType, name: str, without: Callable[[Any], Any]) -> None:
    """A limit that passes long digits, times of any year, doubles that lose digits, what Python takes for a day."""
    with patch.object(module, name, without), pytest.raises((AssertionError, ValueError)):
        for number in range(3000):
            bodies.check(random.Random(f"bodies/{number}"))
