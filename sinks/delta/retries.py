"""What is tried again: how long that waits; and commits that may come second, anew from a newer snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sinks.delta.kernel import KernelConflict

_T = TypeVar("_T")
ATTEMPTS = 10
_MOST_DOUBLINGS = 64
"""Beyond any wait, and far below the 1,024th, which no float can hold: a master may be away for days."""


def until_it_takes(commit: Callable[[], _T], attempts: int | None = None) -> _T:
    """What `commit` returns, which looks at the table anew each time, ATTEMPTS times unless told otherwise.

    Raises the KernelConflict of the last attempt.
    """
    retrying = Retrying(
        stop=stop_after_attempt(attempts or ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        retry=retry_if_exception_type(KernelConflict),
        reraise=True,
    )
    return retrying(commit)


def doubled_s(first_s: float, tries: int, most_s: float) -> float:
    """How long to wait after `tries` more in vain: `first_s`, twice that, and so on, but `most_s` at most."""
    return min(first_s * 2.0 ** min(tries, _MOST_DOUBLINGS), most_s)
