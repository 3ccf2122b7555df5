"""What a real broker counts that waits for two slaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sources.errors import MasterRefused
from sources.rocketmq.wire.client import RemotingClient
from tests.meanwhile import meanwhile
from tests.patience import wait_until
from tests.peers.rocketmq import Broker

HOUSEKEEPING_MS = 3000


@contextmanager
def counting(broker: Broker) -> Iterator[list[int]]:
    """The numbers of connections that the broker counts meanwhile, asked for all the time."""
    counts: list[int] = []

    def look() -> None:
        with suppress(MasterRefused):  # 5.5.0 walks the list while others change it, and then answers code 1
            counts.append(len((client.ha_status() or {})["haConnectionInfo"]))

    with RemotingClient(broker.address) as client, meanwhile(look, every_s=0.002):
        wait_until(lambda: counts != [], "a first look")
        yield counts
