"""How fresh the replicas of logs are while a job runs: how long ago what is not committed yet was written."""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from types import TracebackType
from typing import Self

LOOK_EVERY_S = 0.02


class Freshness:
    """Notes what was written and what is committed of one log, in a thread of its own, as long as the `with` lasts."""

    def __init__(self, position: Callable[[], int | None]) -> None:
        self._position = position
        self._written: list[tuple[int, float]] = []  # the end of what was written, and when; both grow
        self._seen: list[tuple[float, float]] = []  # when, and how long the oldest that was not committed had waited
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def wrote(self, end: int) -> None:
        self._written.append((end, time.monotonic()))

    def worst_s(self, since_s: float) -> float:
        """The longest that anything waited since then, by `time.monotonic`."""
        return max((waited_s for at_s, waited_s in self._seen if at_s >= since_s), default=0.0)

    def _watch(self) -> None:
        while not self._done.wait(LOOK_EVERY_S):
            reached, now_s = self._position() or 0, time.monotonic()
            waiting = bisect_right(self._written, reached, key=lambda one: one[0])
            waited_s = now_s - self._written[waiting][1] if waiting < len(self._written) else 0.0
            self._seen.append((now_s, waited_s))
