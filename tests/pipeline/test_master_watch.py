"""What a job knows of its master, by a clock that the test turns."""

import time

import pytest

from pipeline.job.master_watch import VIEW_EVERY_S, MasterWatch
from sources.errors import LogtwinError, MasterUnreachable
from sources.master import MasterView
from sources.offsets import Offset
from sources.retention import MasterRetention
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

    def look(self) -> MasterView:
        self.times += 1
        if self.error is not None:
            raise self.error
        return MasterView(role="SYNC_MASTER", bounds=span(0, 5000), retention=self._retention)


def a_watch(start: int, end: int, now_s: float = 10.0, *, retention: MasterRetention | None = RETENTION) -> MasterWatch:
    watch = MasterWatch(Asked(retention).look)
    watch.begin({A: span(start, end)}, Offset(start), now_s)
    watch.poll(now_s)
    return watch


def test_a_master_is_asked_for_a_view_every_half_minute_whether_it_answers_or_not() -> None:
    master = Asked()
    watch = MasterWatch(master.look)
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
