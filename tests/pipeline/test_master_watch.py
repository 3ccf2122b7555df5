"""What a job knows of its master, by a clock that the test turns."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from pipeline.job.master_watch import AFTER_ERROR_S, BOUNDS_EVERY_S, VIEW_EVERY_S, MasterWatch
from sources.errors import MasterUnreachable
from sources.master import MasterView
from sources.offsets import Offset, OffsetRange
from sources.retention import MasterRetention
from tests.sinks.memory_master import MemoryMaster

KEEPS_S = 3600.0
RETENTION = MasterRetention(file_size_bytes=1000, keeps_s=KEEPS_S, room_bytes=None)


@dataclass(frozen=True, slots=True)
class Growing(MemoryMaster):
    """A master that says what the test wants it to say, and remembers what it was asked."""

    said: list[tuple[int, int]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    retention: MasterRetention | None = RETENTION

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        self.asked.append("bounds")
        if not self.said:
            raise MasterUnreachable("it is away")
        start, end = self.said[-1]
        return OffsetRange(Offset(start), Offset(end))

    def look(self) -> MasterView:
        self.asked.append("look")
        start, end = self.said[-1]
        return MasterView(role="SYNC_MASTER", bounds=OffsetRange(Offset(start), Offset(end)), retention=self.retention)


def test_it_asks_every_second_and_for_the_rest_every_half_minute() -> None:
    master = Growing((), said=[(0, 100)])
    watch = MasterWatch(master)
    for quarter in range(4 * 60):
        watch.poll(Offset(100), 1000 + quarter / 4)
    assert master.asked.count("bounds") == 60 / BOUNDS_EVERY_S
    assert master.asked.count("look") == 60 / VIEW_EVERY_S


@pytest.mark.parametrize(("among", "asked"), [(1, 60), (64, 60), (960, 4)])
def test_one_of_very_many_is_asked_less_often(among: int, asked: int) -> None:
    master = Growing((), said=[(0, 100)])
    watch = MasterWatch(master, among=among)
    for quarter in range(4 * 60):
        watch.poll(Offset(100), 1000 + quarter / 4)
    assert master.asked.count("bounds") == asked


def test_a_master_that_is_away_is_asked_less_often_and_its_last_answer_stays() -> None:
    master = Growing((), said=[(0, 100)])
    watch = MasterWatch(master)
    watch.poll(Offset(0), 10)
    said = master.said.pop()
    for at in range(20, 20 + int(AFTER_ERROR_S)):
        watch.poll(Offset(0), at)
    assert master.asked.count("bounds") == 2
    assert watch.bounds == OffsetRange(Offset(0), Offset(100))
    assert (watch.role, watch.lag_s(Offset(0), 50)) == ("SYNC_MASTER", 40)
    master.said.append(said)
    watch.poll(Offset(0), 20 + AFTER_ERROR_S)
    assert master.asked.count("bounds") == 3


def test_a_replica_that_holds_nothing_lags_from_the_masters_minimum() -> None:
    master = Growing((), said=[(700, 700)])
    watch = MasterWatch(master)
    watch.ask(None, 10)
    assert watch.lag_s(None, 15) == 0
    master.said.append((700, 800))
    watch.ask(None, 20)
    assert watch.lag_s(None, 25) == 5


def test_until_loss_is_that_of_the_position_now() -> None:
    """The file of 1000 bytes that holds the position goes when its newest record is an hour old, at the earliest."""
    master = Growing((), said=[(0, 5000)])
    watch = MasterWatch(master)
    watch.poll(Offset(2500), 10)
    stored_us = int((time.time() - 600) * 1e6)
    left = watch.until_loss(Offset(2500), stored_us)
    assert left is not None
    assert left.bytes == 2000
    assert left.seconds == pytest.approx(KEEPS_S - 600, abs=60)
    assert watch.until_loss(Offset(5000), stored_us) is None  # all of it is committed
    assert watch.until_loss(Offset(5200), stored_us) is None  # and more than was seen


def test_until_loss_takes_a_time_ahead_of_now_for_now() -> None:
    watch = MasterWatch(Growing((), said=[(0, 5000)]))
    watch.poll(Offset(0), 10)
    left = watch.until_loss(Offset(0), int((time.time() + 500) * 1e6))
    assert left is not None
    assert left.seconds == pytest.approx(KEEPS_S, abs=60)


def test_what_does_not_delete_threatens_nothing() -> None:
    watch = MasterWatch(Growing((), said=[(0, 5000)], retention=None))
    watch.poll(Offset(0), 10)
    assert watch.until_loss(Offset(0), None) is None
