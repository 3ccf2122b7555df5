"""What follows from a progress's facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sources.errors import MasterUnreachable
from sources.offsets import UNITS, Offset, Unit
from tests.pipeline.sample_progress import PROGRESS


@pytest.mark.parametrize(
    ("position", "minimum", "maximum", "lag_bytes"),
    [
        (500, 0, 900, 400),
        (900, 0, 900, 0),
        (950, 0, 900, 0),  # the master was asked before the commit
        (None, 300, 900, 600),  # nothing is committed: all that the master holds
        (500, None, None, None),
    ],
)
def test_the_lag_is_what_the_master_has_and_the_replica_has_not(
    position: int | None, minimum: int | None, maximum: int | None, lag_bytes: int | None
) -> None:
    offsets = [None if one is None else Offset(one) for one in (position, minimum, maximum)]
    now = replace(PROGRESS, position=offsets[0], master_minimum=offsets[1], master_maximum=offsets[2])
    assert now.lag_bytes == lag_bytes


@pytest.mark.parametrize(
    ("log_id", "unit"), [("rocketmq/a", "bytes"), ("dister/a", "ids"), ("kafka/east/orders", "offsets")]
)
def test_a_lag_is_in_what_offsets_count(log_id: str, unit: Unit) -> None:
    progress = replace(PROGRESS, log_id=log_id)
    assert {one: progress.lag_in(one) for one in UNITS} == {one: 400 if one == unit else None for one in UNITS}
    assert progress.lag_bytes == (400 if unit == "bytes" else None)


def test_the_last_error_stays_when_it_has_healed() -> None:
    assert PROGRESS.last_error == "it broke"
    failure = MasterUnreachable("no connection")
    assert replace(PROGRESS, error=failure, last_failure=failure).last_error == "no connection"
    assert replace(PROGRESS, error=None, last_failure=failure).last_error == "no connection"
