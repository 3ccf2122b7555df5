"""Stops a program cleanly on Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_by_signal(request_stop: Callable[[], None]) -> Iterator[None]:
    """During the `with` block, Ctrl-C and SIGTERM call `request_stop`; a second one ends the process at once."""

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
