"""The limit holds at every moment, by a clock that only sleeping moves."""

from __future__ import annotations

import pytest

from pipeline.verify.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds


@pytest.mark.parametrize("size_bytes", [1, 30, 250])
def test_no_more_than_the_limit(size_bytes: int) -> None:
    clock = Clock()
    throttle = Throttle(100, clock=clock, sleep=clock.sleep)
    spent = 0
    for _ in range(50):
        throttle.spend(size_bytes)
        spent += size_bytes
        assert clock.now_s - 1000 == pytest.approx(spent / 100)


def test_slow_work_is_not_slowed_down() -> None:
    clock = Clock()
    throttle = Throttle(100, clock=clock, sleep=clock.sleep)
    throttle.spend(10)
    clock.now_s = 1005.0
    throttle.spend(100)
    assert clock.now_s == 1005.0
