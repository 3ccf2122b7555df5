"""What many would do at the same moment: spread over time, or done side by side, so that nobody holds up the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar


class Spread:
    """Gives each caller a moment of its own, `gap_s` after the one before: now, if nobody called lately.

    No caller waits for another to finish. From any thread.
    """

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._lock = threading.Lock()
        self._next_s = 0.0

    def moment_s(self, from_s: float) -> float:
        """Return the moment, by `time.monotonic`, not before `from_s`."""
        with self._lock:
            at_s = max(from_s, self._next_s)
            self._next_s = at_s + self._gap_s
            return at_s

    def delay_s(self) -> float:
        """Return how long to wait for a moment from now on."""
        now_s = time.monotonic()
        return self.moment_s(now_s) - now_s


AT_ONCE: Final = 64
"""The most that are asked at once."""

A = TypeVar("A")
B = TypeVar("B")


def side_by_side(ask: Callable[[A], B], of: Collection[A]) -> list[B]:
    """Return what `ask` returns for each, in order; it is called in threads. Raises the first error in that order."""
    if not of:
        return []
    with ThreadPoolExecutor(min(len(of), AT_ONCE)) as pool:
        return list(pool.map(ask, of))
