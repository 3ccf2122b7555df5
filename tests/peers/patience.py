"""Waiting for a condition, with a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 60.0
LOOK_EVERY_S = 0.05


def wait_until(holds: Callable[[], bool], what: str | Callable[[], str], within_s: float = PATIENCE_S) -> None:
    """Until `holds`. Raises AssertionError, which says `what` did not come, after `within_s`."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what() if callable(what) else what}")
        pause.wait(LOOK_EVERY_S)
