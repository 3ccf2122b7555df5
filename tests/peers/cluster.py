"""What a running broker of 5.x is told and asked: its settings, the slaves that it counts."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from sources.errors import MasterRefused
from sources.rocketmq.wire.client import RemotingClient
from tests.patience import meanwhile, wait_until
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.wire import Connection, Refused

UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG, BROKER_CLUSTER_INFO, HA_STATUS = 25, 26, 106, 907
LOOKS = 5


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
