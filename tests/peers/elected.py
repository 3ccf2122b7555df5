"""Real 5.5.0 brokers of one group in controller mode, and their controllers, each of which lives in a name server."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.patience import wait_until
from tests.peers.cluster import BROKER_CLUSTER_INFO, knows
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer, free_ports
from tests.peers.wire import Connection, Refused

VERSION = "5.5.0"
SYNC_STATE_SET, EPOCH_CACHE = 1006, 1007


@dataclass
class ElectedGroup:
    """The first of `brokers` started first."""

    name_servers: list[NameServer]
    controller_ports: list[int]
    brokers: list[Broker]

    @property
    def names(self) -> NameServer:
        return self.name_servers[0]

    @property
    def controllers(self) -> str:
        return ";".join(f"127.0.0.1:{port}" for port in self.controller_ports)

    def master(self) -> Broker | None:
        """As the name server says."""
        with Connection(self.names.port) as connection:
            told = connection.call(BROKER_CLUSTER_INFO)[1].decode()
        return next((one for one in self.brokers if f'0:"127.0.0.1:{one.port}"' in told), None)

    def in_sync(self) -> list[dict[str, Any]]:
        """The replicas that the controller has in the group's sync state set."""
        for port in self.controller_ports:
            with suppress(Refused, OSError, KeyError), Connection(port) as connection:  # the others do not lead
                answer = json.loads(connection.call(SYNC_STATE_SET, body=b'["b1"]')[1])
                replicas: list[dict[str, Any]] = answer["replicasInfoTable"]["b1"]["inSyncReplicas"]
                return replicas
        return []

    def await_another_master(self, than: Broker) -> Broker:
        """The one that the name server names instead, once it does."""
        wait_until(lambda: self.master() not in (None, than), "another master")
        master = self.master()
        assert master is not None
        return master

    def await_in_sync(self, count: int) -> None:
        wait_until(lambda: len(self.in_sync()) == count, f"{count} replicas in sync")


def epochs_of(broker: Broker) -> list[tuple[int, int]]:
    """Number and start of each epoch that the broker lists, by its own request."""
    with Connection(broker.port) as connection:
        answer = json.loads(connection.call(EPOCH_CACHE, {"brokerName": "b1"})[1])
    return [(one["epoch"], one["startOffset"]) for one in answer["epochList"]]


@contextmanager
def elected_group(
    home: Path,
    size: int,
    *,
    controllers: int = 1,
    version: str = VERSION,
    settings: Mapping[str, str | int] | None = None,
) -> Iterator[ElectedGroup]:
    """`settings` are further ones of each broker."""
    ports = [free_ports()[0] for _ in range(controllers)]
    group_of_controllers: dict[str, str | int] = {
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "g1",
        "controllerDLegerPeers": ";".join(f"n{at}-127.0.0.1:{port}" for at, port in enumerate(ports)),
        "scanNotActiveBrokerInterval": 1000,
    }
    with ExitStack() as stack:
        name_servers = []
        for at in range(controllers):
            own = {"controllerDLegerSelfId": f"n{at}", "controllerStorePath": str(home / f"controller-{at}")}
            name_servers.append(NameServer(version, home / f"names-{at}", {**group_of_controllers, **own}))
            stack.enter_context(name_servers[-1])
        names = name_servers[0]
        of_brokers: dict[str, str | int] = {
            "namesrvAddr": ";".join(one.address for one in name_servers),
            "enableControllerMode": "true",
            "controllerAddr": ";".join(f"127.0.0.1:{port}" for port in ports),
            "brokerRole": "SLAVE",  # until the controller has elected it
            "brokerId": -1,
            "brokerHeartbeatInterval": 500,
            "controllerHeartBeatTimeoutMills": 3000,
            "haSendHeartbeatInterval": 1000,
            **(settings or {}),
        }
        group = ElectedGroup(name_servers, ports, [])
        for number in range(size):
            broker = Broker(version, home / f"broker-{number}", of_brokers)
            stack.callback(broker.kill)
            broker.start()
            group.brokers.append(broker)
            if not number:
                wait_until(partial(knows, names, broker), "the master at the name server")
        group.await_in_sync(size)
        yield group
