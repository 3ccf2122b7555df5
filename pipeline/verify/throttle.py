"""Limits the bytes per second by waiting."""

from __future__ import annotations

import time
from collections.abc import Callable


class Throttle:
    """Keeps the average rate since the first byte below a limit, at every moment. None is no limit."""

    def __init__(
        self,
        bytes_per_s: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._began_s: float | None = None
        self._spent_bytes = 0

    def spend(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may be spent."""
        if self._bytes_per_s is None:
            return
        if self._began_s is None:
            self._began_s = self._clock()
        self._spent_bytes += size_bytes
        early_s = self._began_s + self._spent_bytes / self._bytes_per_s - self._clock()
        if early_s > 0:
            self._sleep(early_s)
