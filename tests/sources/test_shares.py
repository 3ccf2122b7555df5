"""No log starves, none gets more than it has, and a batch is as large as it may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sources.group.shares import shares

BACKLOGS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.integers(0, 2**40), max_size=40)


@given(backlogs=BACKLOGS, budget_bytes=st.integers(1, 100) | st.integers(1, 2**42))
def test_a_batch_is_full_and_each_log_with_news_has_a_fair_share(backlogs: dict[str, int], budget_bytes: int) -> None:
    found = shares(backlogs, budget_bytes)
    assert sum(found.values()) == max(min(budget_bytes, sum(backlogs.values())), len(found))
    assert set(found) == {log for log, size in backlogs.items() if size}
    assert all(1 <= share <= backlogs[log] for log, share in found.items())
    largest = max(found.values(), default=0)
    assert all(share >= largest - 1 for log, share in found.items() if share < backlogs[log])
