"""A real name server, a real master whose producers wait, and a real slave of it for tests that want one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import wait_until
from tests.peers.name_server import NameServer
from tests.peers.rocketmq import Broker
from tests.peers.wire import Connection, Refused

UPDATE_BROKER_CONFIG, BROKER_CLUSTER_INFO, HA_STATUS = 25, 106, 907
LOOKS = 5


@dataclass(frozen=True)
class Cluster:
    """`master` runs, with `inSyncReplicas` of 2 where it knows that; `slave` does not until a test starts it.

    A slave that starts on an empty store asks for the last segment file: for a full copy its first start must come
    while the master has written but one.
    """

    master: Broker
    slave: Broker

    @property
    def version(self) -> str:
        return self.master.version

    @property
    def counts_connections(self) -> bool:
        """5.x: waits for as many acknowledging connections as it is told to, and says what it counts (907)."""
        return not self.version.startswith("4.")

    @property
    def without_slave(self) -> int:
        """The code of a waiting send that no slave took: SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT."""
        return 12 if self.counts_connections else 11

    def set_in_sync_replicas(self, count: int) -> None:
        """At once, in the running master (5.x)."""
        self._configure(f"inSyncReplicas={count}")

    def set_slave_timeout(self, timeout_ms: int) -> None:
        """At once, in the running master, for the messages that come from then on."""
        self._configure(f"slaveTimeout={timeout_ms}")

    def _configure(self, line: str) -> None:
        with Connection(self.master.port) as connection:
            connection.call(UPDATE_BROKER_CONFIG, body=f"{line}\n".encode())


def connections_of(broker: Broker) -> list[dict[str, Any]]:
    """The slaves that a 5.x broker counts."""
    with Connection(broker.port) as connection:
        for _ in range(LOOKS):
            with suppress(Refused):  # 5.5.0 walks the list while others change it, and then answers code 1
                connections: list[dict[str, Any]] = json.loads(connection.call(HA_STATUS)[1])["haConnectionInfo"]
                return connections
    raise AssertionError(f"the broker refused to list its slaves {LOOKS} times")


def knows(names: NameServer, broker: Broker) -> bool:
    """Whether it would tell a slave of that broker."""
    with Connection(names.port) as connection:
        return f'"127.0.0.1:{broker.port}"'.encode() in connection.call(BROKER_CLUSTER_INFO)[1]


@contextmanager
def running_cluster(version: str, home: Path, *, slave_timeout_ms: int = 3000) -> Iterator[Cluster]:
    with NameServer(version, home / "names") as names:
        shared: dict[str, str | int] = {
            "namesrvAddr": names.address,
            "haSendHeartbeatInterval": 1000,  # a slave's first report comes so late
            "slaveTimeout": slave_timeout_ms,
        }
        waiting = {"brokerRole": "SYNC_MASTER"} | ({} if version.startswith("4.") else {"inSyncReplicas": 2})
        with Broker(version, home / "master", shared | waiting) as master:
            wait_until(lambda: knows(names, master), "the master at the name server")
            slave = Broker(version, home / "slave", shared | {"brokerRole": "SLAVE", "brokerId": 1})
            try:
                yield Cluster(master, slave)
            finally:
                slave.kill()
