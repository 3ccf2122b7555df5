"""The nodes of a group, as its leader lists them: REST's ``/node``, in a file or as an answer. Pure.

::

    [{"name":"…","group":"…","id":"…","ip":"…","status":1,"role":0,"raft":2,"logid":…,"serviceid":…,"version":"1.6"},…]
    {"result":1,"message":"ok","data":[…]}                 the same in REST's answer; result 0 is a refusal

dister itself keeps no such file. A node that was added by its ip and has not spoken yet has the ip as its id, and
nothing else: it is a placeholder, until the real node is listed with the same ip. NodeInfo, v1.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sources.dister import whole_states
from sources.errors import ConfigurationError, MasterRefused

PEERS_FILE: Final = "dister.peers.json"
"""The file that an embedded leader writes into its data folder."""
VERSION: Final = "1.6"
LEADER: Final = 2
"""The value of `raft` for a leader; 0 is a follower, 1 a candidate."""

_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """One node; its fields are named as in its JSON."""

    id: str
    ip: str
    group: str = ""
    name: str = ""
    status: int = 0  # 1 alive
    role: int = 0  # 0 server, 1 client, 2 monitor
    raft: int = 0
    logid: int = 0
    serviceid: int = 0
    version: str = ""

    @property
    def is_placeholder(self) -> bool:
        """Whether it has not spoken yet; then it has no group and no version."""
        return self.id == self.ip

    @property
    def is_leader(self) -> bool:
        return self.raft == LEADER


def decode(data: bytes, what: str = PEERS_FILE) -> tuple[NodeInfo, ...]:
    """Return the nodes in a list or an answer, without the placeholders of nodes that are listed, too.

    Raises MasterSilent (half-written), MasterRefused (a refusal), ProtocolViolation (another shape).
    """
    found = whole_states.decode(data, what)
    if isinstance(found, dict):
        found = _answered(found, what)
    if not isinstance(found, list):
        raise whole_states.other_shape(what, "a JSON array of nodes", found)
    return without_placeholders([_node(one, what) for one in found])


def encode(nodes: Iterable[NodeInfo]) -> bytes:
    return whole_states.encode([asdict(node) for node in nodes])


def without_placeholders(nodes: Sequence[NodeInfo]) -> tuple[NodeInfo, ...]:
    """Return `nodes` without the placeholders of nodes that are there themselves, by their ip."""
    real = {node.ip for node in nodes if not node.is_placeholder}
    return tuple(node for node in nodes if not (node.is_placeholder and node.ip in real))


def check_nodes(nodes: Iterable[NodeInfo], group: str) -> None:
    """Raise ConfigurationError for a node of another group than `group`, and for a leader of another version."""
    for node in nodes:
        if not node.is_placeholder and node.group != group:
            raise ConfigurationError(
                f"node {node.id} ({node.ip}) belongs to another group",
                expected=f"group {group!r}, as the log id says",
                found=f"group {node.group!r}",
                hint="Check `id`, `path` and `peers`: the log of another group is never replicated into this one.",
            )
        if node.is_leader and node.version != VERSION:
            raise ConfigurationError(
                f"the leader {node.id} ({node.ip}) is of another version of dister",
                expected=f"version {VERSION!r}",
                found=f"version {node.version!r}",
                hint="Nodes of different versions refuse each other; what its log looks like is not known.",
            )


def _answered(answer: dict[str, Any], what: str) -> Any:
    if answer.get("result") != 1:
        raise MasterRefused(f"{what}: the node refuses to list its peers", found=answer.get("message"))
    return answer.get("data")


def _node(value: object, what: str) -> NodeInfo:
    if not isinstance(value, dict):
        raise whole_states.other_shape(what, "a node as a JSON object", value)
    fields = {name: value[name] for name in NodeInfo.__slots__ if name in value}
    if not {"id", "ip"} <= fields.keys() or not all(_fits(name, given) for name, given in fields.items()):
        raise whole_states.other_shape(what, "a node's id and ip, and its other fields of their types", value)
    return NodeInfo(**fields)


def _fits(name: str, value: object) -> bool:
    if name in ("status", "role", "raft"):
        return type(value) is int and value in _INT32
    if name in ("logid", "serviceid"):
        return type(value) is int and value in _INT64
    return isinstance(value, str)
