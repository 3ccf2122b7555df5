"""Waiting for a condition, with a limit: only a failing test waits that long. And looking all the time meanwhile."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02


def eventually(holds: Callable[[], bool], within_s: float = PATIENCE_S, *, look_every_s: float = LOOK_EVERY_S) -> bool:
    """Whether `holds` comes true."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            return False
        pause.wait(look_every_s)
    return True


def wait_until(
    holds: Callable[[], bool],
    what: str | Callable[[], str],
    within_s: float = PATIENCE_S,
    *,
    look_every_s: float = LOOK_EVERY_S,
) -> None:
    """Until `holds`. Raises AssertionError, which says `what` did not come."""
    if not eventually(holds, within_s, look_every_s=look_every_s):
        raise AssertionError(f"not within {within_s:g} s: {what() if callable(what) else what}")


async def soon(holds: Callable[[], bool]) -> None:
    """Until `holds`, in an event loop that goes on meanwhile. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


@contextmanager
def meanwhile(look: Callable[[], None], *, every_s: float) -> Iterator[None]:
    """Call `look` again and again, from a thread of its own, while the `with` lasts."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(every_s):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
