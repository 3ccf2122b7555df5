"""Spans of time: as few as wanted, and no longer than needed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pipeline.report.time_buckets import width_s
from tests.pipeline.report.samples import NOW


@pytest.mark.parametrize(
    ("period_s", "width"),
    [
        (0, 1),
        (119, 1),
        (120, 2),
        (3600, 60),
        (86_400, 900),
        (365 * 86_400, 7 * 86_400),
        (200 * 364 * 86_400, 364 * 86_400),
    ],
)
def test_the_shortest_that_fits_or_the_longest(period_s: int, width: int) -> None:
    assert width_s(NOW - timedelta(seconds=period_s), NOW, 120) == width
