"""Lag in time and growth, from sightings that a test makes up."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.monitoring.lag import LIMIT, WINDOW_S, MasterHistory
from sources.offsets import Offset


def history(*sightings: tuple[float, int], reached: int = 0) -> MasterHistory:
    found = MasterHistory()
    for at_s, maximum in sightings:
        found = found.seen(at_s, Offset(maximum), Offset(reached))
    return found


def test_the_lag_is_the_age_of_the_first_byte_that_is_not_committed() -> None:
    """That at 100 was first seen by who found 300. The first of all may be older than the first look: nobody saw it."""
    seen = history((100, 100), (103, 300), (104, 300), (105, 350))
    said = {0: 10, 99: 10, 100: 7, 299: 7, 300: 5, 350: 0, 900: 0}
    assert {reached: seen.lag_s(Offset(reached), now_s=110) for reached in said} == said


def test_nothing_is_known_before_the_first_look() -> None:
    assert MasterHistory().lag_s(Offset(0), 10) is None
    assert MasterHistory().growth_bytes_per_s() is None
    assert history((5, 100)).growth_bytes_per_s() is None
    assert history((5, 100), (5, 200)).growth_bytes_per_s() is None


def test_a_lag_longer_than_the_window_is_remembered() -> None:
    sightings = [(float(at), 1000 + at) for at in range(20_000)]
    seen = history(*sightings, reached=1500)
    assert len(seen.sightings) <= LIMIT
    lag_s = seen.lag_s(Offset(1500), 20_000)
    assert lag_s == pytest.approx(20_000 - 501, rel=2 / LIMIT)


def test_growth_is_that_of_the_window() -> None:
    fast = [(float(at), 1000 * at) for at in range(100)]
    slow = [(100 + WINDOW_S + at, 99_000 + 10 * at) for at in range(int(WINDOW_S))]
    assert history(*fast, reached=99_000).growth_bytes_per_s() == pytest.approx(1000)
    assert history(*fast, *slow, reached=0).growth_bytes_per_s() == pytest.approx(10, rel=0.05)


def test_a_log_that_lost_its_tail_begins_a_new_history() -> None:
    seen = history((0, 1000), (10, 2000), (20, 500), (30, 700))
    assert seen.lag_s(Offset(600), 35) == 5
    assert seen.growth_bytes_per_s() == 20


@given(
    steps=st.lists(st.tuples(st.floats(0.1, 60), st.integers(0, 1000), st.integers(0, 1500)), min_size=1, max_size=600)
)
def test_memory_is_bounded_and_the_lag_never_exceeds_the_time_watched(steps: list[tuple[float, int, int]]) -> None:
    seen, now_s, maximum, reached = MasterHistory(), 0.0, 0, 0
    for wait_s, more, commit in steps:
        now_s, maximum, reached = now_s + wait_s, maximum + more, min(maximum, reached + commit)
        seen = seen.seen(now_s, Offset(maximum), Offset(reached))
        lag_s = seen.lag_s(Offset(reached), now_s)
        assert lag_s is not None
        assert (lag_s == 0) or maximum > reached
        assert 0 <= lag_s <= now_s
        assert len(seen.sightings) <= LIMIT
        assert all(one.at_s <= two.at_s and one.maximum <= two.maximum for one, two in pairwise(seen.sightings))
