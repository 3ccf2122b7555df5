"""A clock on which nothing takes time but what is waited: rhythms and rates are exact, however busy the machine is."""

import threading


class WaitingClock:
    """In the place of the module `time` in one that is tested. Times are seconds, from 0 on."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


class WaitingEvent(threading.Event):
    """An event that is waited for on `clock`."""

    def __init__(self, clock: WaitingClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return self.is_set()
