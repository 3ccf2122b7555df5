"""What a job knows of its master, by a clock that the test turns; lag in time and growth, from made-up sightings."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.job.master_watch import LIMIT, VIEW_EVERY_S, WINDOW_S, MasterHistory, MasterWatch
from sources.bounds import MasterRetention
from sources.errors import LogtwinError, MasterUnreachable
from sources.master import MasterView
from sources.offsets import Offset
from tests.spans import span

A, B = "kafka/c/t/0", "kafka/c/t/1"
KEEPS_S = 3600.0
RETENTION = MasterRetention(file_size_bytes=1000, keeps_s=KEEPS_S, room_bytes=None)


class Asked:
    """A master that is asked for a view of itself."""

    def __init__(self, retention: MasterRetention | None = RETENTION) -> None:
        self.times = 0
        self.error: LogtwinError | None = None
        self._retention = retention

    def view(self) -> MasterView:
        self.times += 1
        if self.error is not None:
            raise self.error
        return MasterView(role="SYNC_MASTER", bounds=span(0, 5000), retention=self._retention)


def a_watch(start: int, end: int, now_s: float = 10.0, *, retention: MasterRetention | None = RETENTION) -> MasterWatch:
    watch = MasterWatch(Asked(retention).view)
    watch.begin({A: span(start, end)}, Offset(start), now_s)
    watch.poll(now_s)
    return watch


def test_a_master_is_asked_for_a_view_every_half_minute_whether_it_answers_or_not() -> None:
    master = Asked()
    watch = MasterWatch(master.view)
    for quarter in range(4 * 60):
        watch.poll(1000 + quarter / 4)
    assert master.times == 60 / VIEW_EVERY_S
    master.error = MasterUnreachable("it is away")
    for quarter in range(4 * 60):
        watch.poll(1060 + quarter / 4)
    assert master.times == 120 / VIEW_EVERY_S
    assert watch.role == "SYNC_MASTER"  # its last answer stays


def test_bounds_and_lag_are_those_of_all_logs_together() -> None:
    watch = MasterWatch()
    assert (watch.bounds, watch.lag_s(None, 5), watch.role) == (None, None, None)
    watch.begin({A: span(0, 100), B: span(50, 60)}, Offset(160), 10)
    assert (watch.bounds, watch.lag_s(Offset(160), 15)) == (span(50, 160), 0)
    watch.hear({B: span(50, 70)}, Offset(160), 20)  # of the other nothing is told: it is as it was
    assert (watch.bounds, watch.lag_s(Offset(160), 25)) == (span(50, 170), 5)
    watch.hear({}, Offset(160), 26)
    assert watch.held == {A: span(0, 100), B: span(50, 70)}
    watch.begin({A: span(0, 3)}, Offset(0), 30)  # it was asked, and is another topic
    assert (watch.bounds, watch.held) == (span(0, 3), {A: span(0, 3)})
    watch = MasterWatch()  # a replica that holds nothing lags from the master's minimum
    watch.begin({A: span(700, 700)}, None, 10)
    assert watch.lag_s(None, 15) == 0
    watch.hear({A: span(700, 800)}, None, 20)
    assert watch.lag_s(None, 25) == 5


def test_what_is_heard_often_counts_every_five_seconds() -> None:
    """For the rate at which the log grows; a change counts at once."""
    watch = a_watch(0, 1000, now_s=0.0)
    for quarter in range(4 * 100 + 1):
        watch.hear({A: span(0, 1000 if quarter < 200 else 4000)}, Offset(0), quarter / 4)
    assert len(watch._history.sightings) == 21
    assert watch._history.growth_bytes_per_s() == 3000 / 100


def test_until_loss_is_that_of_the_position_now() -> None:
    """The file of 1000 bytes that holds the position goes when its newest record is an hour old, at the earliest."""
    watch = a_watch(0, 5000)
    stored_us = int((time.time() - 600) * 1e6)
    left = watch.until_loss(Offset(2500), stored_us)
    assert left is not None
    assert left.bytes == 2000
    assert left.seconds == pytest.approx(KEEPS_S - 600, abs=60)
    assert watch.until_loss(Offset(5000), stored_us) is None  # all of it is committed
    assert watch.until_loss(Offset(5200), stored_us) is None  # and more than was seen
    ahead = watch.until_loss(Offset(0), int((time.time() + 500) * 1e6))  # of now: taken for now
    assert ahead is not None
    assert ahead.seconds == pytest.approx(KEEPS_S, abs=60)
    assert a_watch(0, 5000, retention=None).until_loss(Offset(0), None) is None  # what does not delete


def history(*sightings: tuple[float, int], reached: int = 0) -> MasterHistory:
    found = MasterHistory()
    for at_s, maximum in sightings:
        found = found.seen(at_s, Offset(maximum), Offset(reached))
    return found


def test_the_lag_is_the_age_of_the_first_byte_that_is_not_committed_and_before_the_first_look_unknown() -> None:
    """That at 100 was first seen by who found 300. The first of all may be older than the first look: nobody saw it."""
    seen = history((100, 100), (103, 300), (104, 300), (105, 350))
    said = {0: 10, 99: 10, 100: 7, 299: 7, 300: 5, 350: 0, 900: 0}
    assert {reached: seen.lag_s(Offset(reached), now_s=110) for reached in said} == said
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
