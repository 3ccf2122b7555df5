"""A name server that lists what a test says: clusters, and their brokers with the addresses of their masters."""

import json
from collections.abc import Mapping
from typing import Any

from sources.access.address import Address
from sources.rocketmq.wire.remoting import Command, RequestCode, encode_command
from tests.sources.rocketmq.scripted_master import ScriptedBroker

Brokers = Mapping[str, Address | None]


class ScriptedNameServer(ScriptedBroker):
    """Answers request 106, as fastjson writes it, with integer keys unquoted; change `clusters` at any time.

    A broker without a master has a slave.
    """

    def __init__(self, clusters: Mapping[str, Brokers]) -> None:
        super().__init__(self._told)
        self.clusters = dict(clusters)

    def _told(self, request: Command) -> bytes:
        assert request.code == RequestCode.GET_BROKER_CLUSTER_INFO
        brokers: dict[str, Any] = {
            name: {"brokerAddrs": {7: "10.0.0.7:1"} if at is None else {0: str(at)}, "brokerName": name, "cluster": one}
            for one, group in self.clusters.items()
            for name, at in group.items()
        }
        told = {"brokerAddrTable": brokers, "clusterAddrTable": {one: [*group] for one, group in self.clusters.items()}}
        text = json.dumps(told).replace('"0":', "0:").replace('"7":', "7:")
        return encode_command(request.response(0, body=text.encode()))
