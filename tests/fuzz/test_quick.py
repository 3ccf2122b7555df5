"""Some cases of each target in every run of the suite; an hour of them is tests/soak/test_fuzz.py."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from sources.rocketmq.format import properties
from tests.fuzz import records
from tests.fuzz.__main__ import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_a_named_error_or_the_right_rows(target: str) -> None:
    for number in range(100):
        TARGETS[target](random.Random(f"{target}/{number}"))  # again: python -m tests.fuzz <target> --seed <number>


def test_it_finds_what_a_long_number_did() -> None:
    """With the conversion that ended logs a case fails soon: so the generators do write such properties."""
    with patch.object(properties, "_java_int", int), pytest.raises((AssertionError, ValueError)):
        for number in range(300):
            records.check(random.Random(f"records/{number}"))
