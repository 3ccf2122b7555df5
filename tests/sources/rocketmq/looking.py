"""Looks for the end of a commit log, with a clock of their own; and what is told of it."""

import logging
from pathlib import Path

import pytest

from sources.bounds import ToldDoubt
from sources.rocketmq.files.segments import Segments
from tests.sources.rocketmq.synthetic_log import SyntheticLog


class FakeTime:
    """A clock that only sleeping moves; a sleep may be used to let the broker do something."""

    def __init__(self, *events: object) -> None:
        self.now = 100.0
        self.sleeps = 0
        self._events = iter(events)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.now += seconds
        event = next(self._events, None)
        if callable(event):
            event()


def segments(log: SyntheticLog | Path, time: FakeTime | None = None, settle_s: float = 1.0) -> Segments:
    """As another process, which remembers nothing."""
    time = time or FakeTime()
    path = log.path if isinstance(log, SyntheticLog) else log
    return Segments(path, settle_s=settle_s, clock=time.clock, sleep=time.sleep, seen={})


def doubts(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was told of them; other tests' threads may say something meanwhile."""
    return [record for record in caplog.records if record.name == ToldDoubt.__module__]
