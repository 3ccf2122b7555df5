"""What is planned, as the rows that a batch of the stream has."""

from __future__ import annotations

from sources.errors import BelowMinimum, find_error
from sources.master import RANGES_SCHEMA, PlanFailed, PlannedSplit, as_batch
from sources.offsets import Offset, OffsetRange

SPLIT = PlannedSplit("rocketmq/a", OffsetRange(Offset(0), Offset(9)), OffsetRange(Offset(3), Offset(6)))
FAILED = PlanFailed("rocketmq/b", BelowMinimum("gone", log="rocketmq/b", offset=5, expected="7 or more", found=5))


def test_a_row_is_a_split_or_an_error() -> None:
    batch = as_batch([SPLIT, FAILED])
    assert batch.schema == RANGES_SCHEMA
    split, failed = (tuple(row.values()) for row in batch.to_pylist())
    assert split == ("rocketmq/a", 0, 9, 3, 6, None)
    assert failed[:5] == ("rocketmq/b", None, None, None, None)
    error = find_error(failed[5])
    assert isinstance(error, BelowMinimum)
    assert error.facts() == FAILED.error.facts()
