"""Calls that are made at the same moment."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

Made = TypeVar("Made")


def at_once(calls: Sequence[Callable[[], Made]]) -> list[Made]:
    """What each of `calls` returns, each made in a thread of its own. Raises what one of them raises."""
    together = Barrier(len(calls))

    def begin(call: Callable[[], Made]) -> Made:
        together.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [one.result() for one in [threads.submit(begin, call) for call in calls]]
