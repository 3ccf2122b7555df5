"""What is planned, as the rows that Spark carries from the planner to the sink."""

from __future__ import annotations

import pytest

from sources.errors import BelowMinimum
from sources.master import RANGES_SCHEMA, PlanFailed, Planned, PlannedSplit, as_batch, from_row
from sources.offsets import Offset, OffsetRange

SPLIT = PlannedSplit("rocketmq/a", OffsetRange(Offset(0), Offset(9)), OffsetRange(Offset(3), Offset(6)))
FAILED = PlanFailed("rocketmq/b", BelowMinimum("gone", log="rocketmq/b", offset=5, expected="7 or more", found=5))


def parsed(planned: list[Planned]) -> list[Planned]:
    batch = as_batch(planned)
    assert batch.schema == RANGES_SCHEMA
    return [from_row(list(row.values())) for row in batch.to_pylist()]


def test_a_row_is_a_split_or_an_error() -> None:
    split, failed = parsed([SPLIT, FAILED])
    assert split == SPLIT
    assert isinstance(failed, PlanFailed)
    assert failed.log_id == "rocketmq/b"
    assert isinstance(failed.error, BelowMinimum)
    assert failed.error.facts() == FAILED.error.facts()


def test_nothing_planned_is_no_row() -> None:
    assert parsed([]) == []


def test_an_error_that_nobody_can_read_is_said() -> None:
    with pytest.raises(ValueError, match=r"rocketmq/b.*oops"):
        from_row(("rocketmq/b", None, None, None, None, "oops"))
