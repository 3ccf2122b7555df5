"""What a name server knows of brokers: the answer to request 106, GET_BROKER_CLUSTER_INFO. Pure.

The answer is JSON (`ClusterInfo` of org.apache.rocketmq):

================  ==================================================================================================
clusterAddrTable  cluster name -> list of its broker names
brokerAddrTable   broker name -> object with brokerName, cluster, and brokerAddrs: broker id -> host:port; id 0 is the
                  master, and is missing while a group has none
================  ==================================================================================================

A broker is in both tables from its first registration on, until the last of its group has unregistered, or has been
silent for two minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sources.access.address import Address
from sources.errors import ConfigurationError, ProtocolViolation
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode, accepted, loads

QUESTION: Final = Command(RequestCode.GET_BROKER_CLUSTER_INFO)


def check_kind(asked: Address, answer: Command, kind: str) -> None:
    """Raise ConfigurationError if what answers at `asked` does not know the question of a `kind`; brokers do not."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise ConfigurationError(
            f"what answers at {asked} is no {kind}, but perhaps a broker",
            expected=f"the address of a {kind}, which knows where masters are",
            found=answer.remark or "a refusal of the question",
            hint="A broker's own addresses are master and remoting, of the HA port and of the normal one.",
        )


def groups_in(answer: Command, name_server: Address) -> Mapping[str, Any]:
    """Return the brokerAddrTable. Raises ConfigurationError, MasterRefused, ProtocolViolation."""
    return _table(answer, name_server, "brokerAddrTable")


def clusters_in(answer: Command, name_server: Address) -> Mapping[str, tuple[str, ...]]:
    """Return the broker names of each cluster. Raises as `groups_in`."""
    table = _table(answer, name_server, "clusterAddrTable")
    for name, brokers in table.items():
        if not isinstance(brokers, list):
            raise _violation(name_server, f"a list of the brokers of {name}", brokers)
    return {name: tuple(map(str, brokers)) for name, brokers in table.items()}


def _table(answer: Command, name_server: Address, key: str) -> Mapping[str, Any]:
    check_kind(name_server, answer, "name server")
    told = loads(accepted(QUESTION.code, answer, f"the name server at {name_server}").body)
    table = told.get(key) if isinstance(told, dict) else None
    if not isinstance(table, dict):
        raise _violation(name_server, f'a JSON object "{key}"', told)
    return table


def _violation(name_server: Address, expected: str, found: object) -> ProtocolViolation:
    return ProtocolViolation(
        f"the cluster info of the name server at {name_server} is none",
        expected=expected,
        found=found,
        hint="Check that the address is that of a name server.",
    )
