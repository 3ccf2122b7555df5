"""How the time of a parser grows with its input: a ratio of two sizes in one process, never a time by itself."""

import gc
import time
from collections.abc import Callable
from typing import Any, Final

LARGER: Final = 8
MOST: Final = 24.0
"""LARGER times the input takes about LARGER times as long if that is linear, and LARGER squared times if quadratic."""

_MEASURABLE_S: Final = 0.002  # so much that even the smaller input needs memory that is new to the process
_MOST_ITEMS: Final = 1 << 20
_TRIES: Final = 3  # another process may have had the processor's caches


def growth(make: Callable[[int], Any], work: Callable[[Any], object]) -> float:
    """How many times as long `work` takes for LARGER times as many items of `make`: the least of some tries."""
    found = [_growth(make, work)]
    while found[-1] > MOST and len(found) < _TRIES:
        found.append(_growth(make, work))
    return min(found)


def _growth(make: Callable[[int], Any], work: Callable[[Any], object]) -> float:
    """The smaller number of items is the first, doubled from 64 on, that takes measurable time, far more than one."""
    least_s = max(_MEASURABLE_S, 3 * min(spent_s(make(1), work) for _ in range(2)))
    count = 64
    while (small_s := spent_s(make(count), work)) < least_s and count < _MOST_ITEMS:
        count *= 2
    if small_s < least_s:
        return 0.0
    small_s = min(small_s, spent_s(make(count), work))
    return spent_s(make(LARGER * count), work) / small_s


def spent_s(given: Any, work: Callable[[Any], object]) -> float:
    """The processor time of this thread alone, without collections of garbage, whose time is the whole process's."""
    gc.disable()
    try:
        started_s = time.thread_time()
        work(given)
        return time.thread_time() - started_s
    finally:
        gc.enable()
