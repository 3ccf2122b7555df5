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
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Literal

from sources.offsets import Offset
from sources.rocketmq.embedded.group_transfer import GroupTransfer
from sources.rocketmq.embedded.ha_service import HAService
from sources.rocketmq.format import properties
from sources.rocketmq.format.commitlog import Host
from sources.rocketmq.wire.remoting import ResponseCode
from sources.rocketmq.wire.send_header import SendHeader

log = logging.getLogger(__name__)

Role = Literal["ASYNC_MASTER", "SYNC_MASTER"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleWriteSettings:
    """When producers wait for slaves; the defaults are a 4.9.x broker's."""

    role: Role = "ASYNC_MASTER"  # brokerRole
    in_sync_replicas: int | None = None  # inSyncReplicas, the master included; None: as in 4.x
    slave_timeout_s: float = 3.0  # slaveTimeout
    fall_behind_max_bytes: int = 256 * 1024 * 1024  # haSlaveFallbehindMax


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


_WAIT: Final = f"{properties.WAIT}\x01"


def _asks_to_wait(block: str) -> bool:
    """Do what `Message.isWaitStoreMsgOK` does: true without the property, or with "true" in any case."""
    return properties.decode(block.encode()).get(properties.WAIT, "true").lower() == "true"
