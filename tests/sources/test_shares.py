"""No log starves, none gets more than it has, and a batch is as large as it may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.group.shares import shares

BACKLOGS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.integers(0, 2**40), max_size=40)


@pytest.mark.parametrize(
    ("backlogs", "budget_bytes", "found"),
    [
        ({}, 100, {}),
        ({"a": 0}, 100, {}),
        ({"a": 30, "b": 40}, 100, {"a": 30, "b": 40}),
        ({"a": 500, "b": 500}, 100, {"a": 50, "b": 50}),
        ({"a": 10, "b": 500, "c": 500}, 100, {"a": 10, "b": 45, "c": 45}),
        ({"a": 10, "b": 40, "c": 500}, 120, {"a": 10, "b": 40, "c": 70}),
        ({"a": 500, "b": 500, "c": 500}, 2, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_what_small_ones_leave_goes_to_the_others(
    backlogs: dict[str, int], budget_bytes: int, found: dict[str, int]
) -> None:
    assert shares(backlogs, budget_bytes) == found


@given(backlogs=BACKLOGS, budget_bytes=st.integers(1, 2**42))
def test_a_batch_is_full_or_takes_all_there_is(backlogs: dict[str, int], budget_bytes: int) -> None:
    found = shares(backlogs, budget_bytes)
    assert sum(found.values()) == max(min(budget_bytes, sum(backlogs.values())), len(found))


@given(backlogs=BACKLOGS, budget_bytes=st.integers(1, 2**42))
def test_every_log_with_news_gets_a_share_and_no_more_than_it_has(backlogs: dict[str, int], budget_bytes: int) -> None:
    found = shares(backlogs, budget_bytes)
    assert set(found) == {log for log, size in backlogs.items() if size}
    assert all(1 <= share <= backlogs[log] for log, share in found.items())


@given(backlogs=BACKLOGS, budget_bytes=st.integers(1, 2**42))
def test_who_has_to_wait_has_no_less_than_any_other(backlogs: dict[str, int], budget_bytes: int) -> None:
    found = shares(backlogs, budget_bytes)
    largest = max(found.values(), default=0)
    assert all(share >= largest - 1 for log, share in found.items() if share < backlogs[log])
