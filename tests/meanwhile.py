"""What is looked at all the time while something else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
