"""Spans of time: as few as wanted, and no longer than needed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pipeline.report.time_buckets import width_s
from tests.pipeline.report.samples import NOW


@pytest.mark.parametrize(
    ("period", "width"),
    [
        (timedelta(0), 1),
        (timedelta(seconds=119), 1),
        (timedelta(seconds=120), 2),
        (timedelta(hours=1), 60),
        (timedelta(days=1), 900),
        (timedelta(days=365), 7 * 86_400),
    ],
)
def test_the_shortest_that_fits(period: timedelta, width: int) -> None:
    assert width_s(NOW - period, NOW, 120) == width


def test_a_century_gets_the_longest() -> None:
    assert width_s(NOW - timedelta(days=365 * 100), NOW, 60) == 364 * 86_400
