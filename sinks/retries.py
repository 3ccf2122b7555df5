"""Commits that may come second: done anew, from a newer snapshot, after each conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sinks.kernel import KernelConflict

_T = TypeVar("_T")
ATTEMPTS = 10


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
