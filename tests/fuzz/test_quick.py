"""Some cases of each target in every run of the suite; an hour of them is tests/soak/test_fuzz.py."""

import random

import pytest

from tests.fuzz.__main__ import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_a_named_error_or_the_right_rows(target: str) -> None:
    for number in range(40):
        TARGETS[target](random.Random(f"{target}/{number}"))  # again: python -m tests.fuzz <target> --seed <number>
