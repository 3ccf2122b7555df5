"""Producers wait here until slaves hold their message: the group transfer of RocketMQ's HA service, in one event loop.

What holds here, and what the original does badly (rows HA-23 … HA-32 of the seeds' behaviours):

* A waiter is answered as soon as what slaves have acknowledged reaches the end of its message, whoever waits before it.
  The original went through its requests one by one, and one that was stuck held up all behind it.
* Every wait has a limit of its own. The original never counted its attempts, so it waited for ever.
* Every waiter is answered exactly once: acknowledged, too late, or stopped. A cancelled one is forgotten at once.
* `stop` answers all who wait, and all who come later. The original's thread did not look at its stop flag.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sources.offsets import Offset


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    place: tuple[int, int]  # the end of its message, and its turn among those with the same
    answer: asyncio.Future[bool]


class GroupTransfer:
    """The waiters and the offsets that they wait for. For one event loop."""

    def __init__(self, acknowledged: Callable[[], Offset], timeout_s: float) -> None:
        """`acknowledged` returns the offset below which enough slaves hold everything; it falls when one leaves."""
        self._acknowledged = acknowledged
        self._timeout_s = timeout_s
        self._turns = itertools.count()
        self._waiters: list[_Waiter] = []  # by place: an acknowledgement releases the first ones
        self._has_stopped = False

    def __len__(self) -> int:
        return len(self._waiters)

    async def until(self, end: Offset) -> bool:
        """Wait until everything below `end` is acknowledged; return False if that took too long."""
        if self._acknowledged() >= end:
            return True
        if self._has_stopped:
            return False
        loop = asyncio.get_running_loop()
        waiter = _Waiter((end, next(self._turns)), loop.create_future())
        insort(self._waiters, waiter, key=_place)
        timer = loop.call_later(self._timeout_s, _answer, (waiter,), False)
        try:
            return await waiter.answer
        finally:
            timer.cancel()
            self._forget(waiter)

    def wake(self) -> None:
        """Answer, in the order of the log, all who wait for no more than what is acknowledged now."""
        released = bisect_left(self._waiters, (self._acknowledged() + 1, 0), key=_place)
        _answer(self._waiters[:released], True)
        del self._waiters[:released]  # in one go: deleting one by one would move the others each time

    def stop(self) -> None:
        """Answer everyone, also those who come later: no slave will be heard of any more."""
        self._has_stopped = True
        _answer(self._waiters, False)

    def _forget(self, waiter: _Waiter) -> None:
        at = bisect_left(self._waiters, waiter.place, key=_place)
        if self._waiters[at : at + 1] == [waiter]:
            del self._waiters[at]


def _place(waiter: _Waiter) -> tuple[int, int]:
    return waiter.place


def _answer(waiters: Iterable[_Waiter], is_acknowledged: bool) -> None:
    """Answer each once: a first answer stands, and a cancelled waiter wants none."""
    for waiter in waiters:
        if not waiter.answer.done():
            waiter.answer.set_result(is_acknowledged)
