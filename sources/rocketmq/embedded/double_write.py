"""What a producer is told about replicas: a broker's double write (MS-01 … MS-10 of the seeds' behaviours).

A producer waits only on a SYNC_MASTER, and only if the message does not say WAIT=false. The message is stored in any
case. Without `in_sync_replicas` as in 4.x (`CommitLog.submitReplicaRequest`, `HAService.isSlaveOK`):

* SLAVE_NOT_AVAILABLE, at once: no slave is connected, or the fastest one lacks `fall_behind_max_bytes` or more,
  measured to the end of this message;
* PUT_OK: one slave has acknowledged the end of the message; any one is enough;
* FLUSH_SLAVE_TIMEOUT: no slave has within `slave_timeout_s`, or the master stops.

With `in_sync_replicas` as in 5.x (`CommitLog.calcNeedAckNums`): with 1 nobody waits; with n, producers wait until n − 1
connections have acknowledged, or for FLUSH_SLAVE_TIMEOUT, even without any slave.

Only connected slaves count. The original kept the highest offset that any slave had ever reported (HA-09).

Producers wait in the group transfer. What holds there, and what the original does badly (HA-23 … HA-32):

* A waiter is answered as soon as what slaves have acknowledged reaches the end of its message, whoever waits before it.
  The original went through its requests one by one, and one that was stuck held up all behind it.
* Every wait has a limit of its own. The original never counted its attempts, so it waited for ever.
* Every waiter is answered exactly once: acknowledged, too late, or stopped. A cancelled one is forgotten at once.
* `stop` answers all who wait, and all who come later. The original's thread did not look at its stop flag.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from sources.offsets import Offset
from sources.rocketmq.embedded.ha_service import HAService
from sources.rocketmq.format import properties
from sources.rocketmq.format.layout import Host
from sources.rocketmq.wire.remoting import ResponseCode
from sources.rocketmq.wire.send_header import SendHeader

log = logging.getLogger(__name__)

_WAIT: Final = f"{properties.WAIT}\x01"

Role = Literal["ASYNC_MASTER", "SYNC_MASTER"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleWriteSettings:
    """When producers wait for slaves; the defaults are a 4.9.x broker's."""

    role: Role = "ASYNC_MASTER"  # brokerRole
    in_sync_replicas: int | None = None  # inSyncReplicas, the master included; None: as in 4.x
    slave_timeout_s: float = 3.0  # slaveTimeout
    fall_behind_max_bytes: int = 256 * 1024 * 1024  # haSlaveFallbehindMax


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    order: tuple[int, int]  # the end of its message, and its turn among those with the same
    answer: asyncio.Future[bool]


class GroupTransfer:
    """The waiters and the offsets that they wait for. For one event loop."""

    def __init__(self, acknowledged: Callable[[], Offset], timeout_s: float) -> None:
        """`acknowledged` returns the offset below which enough slaves hold everything; it falls when one leaves."""
        self._acknowledged = acknowledged
        self._timeout_s = timeout_s
        self._turns = itertools.count()
        self._waiters: list[_Waiter] = []  # in order: an acknowledgement releases the first ones
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
        insort(self._waiters, waiter, key=_order)
        timer = loop.call_later(self._timeout_s, _answer, (waiter,), False)
        try:
            return await waiter.answer
        finally:
            timer.cancel()
            self._forget(waiter)

    def wake(self) -> None:
        """Answer, in the order of the log, all who wait for no more than what is acknowledged now."""
        released = bisect_left(self._waiters, (self._acknowledged() + 1, 0), key=_order)
        _answer(self._waiters[:released], True)
        del self._waiters[:released]  # in one go: deleting one by one would move the others each time

    def stop(self) -> None:
        """Answer everyone, also those who come later: no slave will be heard of any more."""
        self._has_stopped = True
        _answer(self._waiters, False)

    def _forget(self, waiter: _Waiter) -> None:
        at = bisect_left(self._waiters, waiter.order, key=_order)
        if self._waiters[at : at + 1] == [waiter]:
            del self._waiters[at]


def _order(waiter: _Waiter) -> tuple[int, int]:
    return waiter.order


def _answer(waiters: Iterable[_Waiter], is_acknowledged: bool) -> None:
    """Answer each once: a first answer stands, and a cancelled waiter wants none."""
    for waiter in waiters:
        if not waiter.answer.done():
            waiter.answer.set_result(is_acknowledged)


class DoubleWrite:
    """Decides who waits, and what they are told."""

    def __init__(self, ha: HAService, settings: DoubleWriteSettings) -> None:
        slaves_needed = 1 if settings.in_sync_replicas is None else settings.in_sync_replicas - 1
        self._ha = ha
        self._settings = settings
        self._may_wait = settings.role == "SYNC_MASTER" and slaves_needed > 0
        self._transfer = GroupTransfer(lambda: ha.acknowledged_by(slaves_needed), settings.slave_timeout_s)
        if self._may_wait:
            ha.when_acknowledged(self._transfer.wake)

    def is_wanted(self, header: SendHeader) -> bool:
        """Whether to tell this message's producer about slaves."""
        return self._may_wait and (_WAIT not in header.properties or _asks_to_wait(header.properties))

    async def status(self, end: Offset, header: SendHeader, sender: Host) -> ResponseCode:
        """Return the result for a message of `sender` that ends at `end`, once it is known."""
        if self._settings.in_sync_replicas is None and not self._is_slave_available(end):
            return ResponseCode.SLAVE_NOT_AVAILABLE
        if await self._transfer.until(end):
            return ResponseCode.SUCCESS
        log.error(
            "not acknowledged by slaves in time: topic %s, tags %s, client %s, stored up to %s",
            header.topic, properties.decode(header.properties.encode()).get(properties.TAGS), sender, end,
        )  # fmt: skip
        return ResponseCode.FLUSH_SLAVE_TIMEOUT

    def stop(self) -> None:
        """Answer everyone who waits: no slave will be heard of any more."""
        self._transfer.stop()

    def _is_slave_available(self, end: Offset) -> bool:
        behind = end - self._ha.acknowledged_by(1)
        return bool(self._ha.slaves) and behind < self._settings.fall_behind_max_bytes


def _asks_to_wait(block: str) -> bool:
    """Do what `Message.isWaitStoreMsgOK` does: true without the property, or with "true" in any case."""
    return properties.decode(block.encode()).get(properties.WAIT, "true").lower() == "true"
