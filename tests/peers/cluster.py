"""A real name server, a real master whose producers wait, and a real slave of it for tests that want one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import wait_until
from tests.peers.name_server import NameServer
from tests.peers.rocketmq import Broker
from tests.peers.wire import Connection, Refused

UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG, BROKER_CLUSTER_INFO, HA_STATUS = 25, 26, 106, 907
LOOKS = 5


@dataclass(frozen=True)
class Cluster:
    """`master` runs, with `inSyncReplicas` of 2; `slave` does not until a test starts it.

    A slave that starts on an empty store asks for the last segment file: for a full copy its first start must come
    while the master has written but one.
    """

    master: Broker
    slave: Broker


@contextmanager
def configured(broker: Broker, **settings: int) -> Iterator[None]:
    """A running 5.x broker with other settings, at once and as long as the `with` lasts."""
    with Connection(broker.port) as connection:
        lines = connection.call(GET_BROKER_CONFIG)[1].decode().splitlines()
        before = dict(line.split("=", 1) for line in lines if "=" in line)
        _configure(connection, settings)
    try:
        yield
    finally:
        with Connection(broker.port) as connection:
            _configure(connection, {name: before[name] for name in settings})


def _configure(connection: Connection, settings: Mapping[str, object]) -> None:
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    connection.call(UPDATE_BROKER_CONFIG, body=text.encode())


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
def running_cluster(home: Path, *, slave_timeout_ms: int) -> Iterator[Cluster]:
    """Of 5.5.0."""
    with NameServer("5.5.0", home / "names") as names:
        shared: dict[str, str | int] = {
            "namesrvAddr": names.address,
            "haSendHeartbeatInterval": 1000,  # a slave's first report comes so late
            "slaveTimeout": slave_timeout_ms,
        }
        with Broker("5.5.0", home / "master", shared | {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}) as master:
            wait_until(lambda: knows(names, master), "the master at the name server")
            slave = Broker("5.5.0", home / "slave", shared | {"brokerRole": "SLAVE", "brokerId": 1})
            try:
                yield Cluster(master, slave)
            finally:
                slave.kill()
