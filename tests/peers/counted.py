"""A real broker that waits for two slaves and so counts connections, and what it counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sources.errors import MasterRefused
from sources.rocketmq.wire.client import RemotingClient
from tests.meanwhile import meanwhile
from tests.patience import wait_until
from tests.peers.cluster import configured, connections_of
from tests.peers.rocketmq import Broker

HOUSEKEEPING_MS = 3000


@contextmanager
def counting_connections(broker: Broker) -> Iterator[Broker]:
    """A SYNC_MASTER that waits for two slaves, as long as the `with` lasts; it counts none at first."""
    with configured(broker, inSyncReplicas=3, slaveTimeout=1000, haHousekeepingInterval=HOUSEKEEPING_MS):
        wait_until(lambda: connections_of(broker) == [], "the end of others' connections")
        yield broker


def listed(client: RemotingClient) -> int:
    """How many connections the broker counts for slaves now."""
    return len((client.ha_status() or {})["haConnectionInfo"])


@contextmanager
def counting(broker: Broker) -> Iterator[list[int]]:
    """The numbers of connections that the broker counts meanwhile, asked for all the time."""
    counts: list[int] = []

    def look() -> None:
        with suppress(MasterRefused):  # 5.5.0 walks the list while others change it, and then answers code 1
            counts.append(listed(client))

    with RemotingClient(broker.address) as client, meanwhile(look, every_s=0.002):
        wait_until(lambda: counts != [], "a first look")
        yield counts
