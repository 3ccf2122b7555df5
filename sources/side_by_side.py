"""Asks many side by side, so that those that do not answer cost the time of one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

AT_ONCE: Final = 64
"""Of more than these, as many are asked at once."""

A = TypeVar("A")
B = TypeVar("B")


def side_by_side(ask: Callable[[A], B], of: Collection[A]) -> list[B]:
    """What `ask` returns for each, in order; it is called in threads. Raises the first error in that order."""
    if not of:
        return []
    with ThreadPoolExecutor(min(len(of), AT_ONCE)) as pool:
        return list(pool.map(ask, of))
