"""The states beside a leader's log: its service registry, and the nodes of its group. Pure.

``dister.service.db``, the registry (`saveServiceToFile`, v1.6)::

    {"LastServiceLogId":<ms>,"Service":{"<index>.<name>.service.dister":{"type":"…","node":{…}},…}}

REST's ``/node``, the nodes, in a file or as an answer (NodeInfo, v1.6)::

    [{"name":"…","group":"…","id":"…","ip":"…","status":1,"role":0,"raft":2,"logid":…,"serviceid":…,"version":"1.6"},…]
    {"result":1,"message":"ok","data":[…]}                 the same in REST's answer; result 0 is a refusal

dister writes each as a whole, without a length or a checksum. Invalid JSON is a half-written file, because dister
truncates such a file and then writes it: the next look will tell. JSON of another shape is an error for good.

What must hold: a registry's id grows with every change, so a greater id means a newer registry. dister uses the wall
clock in ms, which may stand still or go back; here an id is at least one more than the id before. dister's SET without
nodes deletes without a new id, so nobody notices, and deletes only up to the first missing index; here every node of
the name is deleted, and every change has its id.

dister keeps no file of its nodes. A node that was added by its ip and has not spoken yet has the ip as its id, and
nothing else: it is a placeholder, until the real node is listed with the same ip.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sources.dister.entries import loads
from sources.errors import ConfigurationError, MasterRefused, MasterSilent, ProtocolViolation

_ESCAPED: Final = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}  # as Go's encoder does, anywhere


def decode_json(data: bytes, what: str) -> Any:
    """Return the value in `data`. Raises MasterSilent, naming `what`, for invalid JSON."""
    try:
        return loads(data)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError and a JSONDecodeError are ValueErrors
        raise MasterSilent(
            f"{what} is not whole",
            expected="JSON in UTF-8",
            found=f"{len(data)} bytes: {error}",
            hint="dister rewrites it in place; if it stays so, it is damaged.",
        ) from error


def encode_json(value: object) -> bytes:
    """Encode `value` byte for byte as Go's encoder does: keys sorted, no spaces."""
    return sorted_text(value).translate(_ESCAPED).encode()


def sorted_text(value: object) -> str:
    """Return `value` as JSON: the same text for the same value, whatever the order of its keys."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def other_shape(what: str, expected: str, found: object) -> ProtocolViolation:
    """Return the error for `what` being JSON, but not what dister writes there."""
    return ProtocolViolation(
        f"{what} has another shape",
        expected=expected,
        found=f"{found!r:.200}",
        hint="Check that this is dister's, version 1.6.",
    )


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


def decode_nodes(data: bytes, what: str = PEERS_FILE) -> tuple[NodeInfo, ...]:
    """Return the nodes in a list or an answer, without the placeholders of nodes that are listed, too.

    Raises MasterSilent (half-written), MasterRefused (a refusal), ProtocolViolation (another shape).
    """
    found = decode_json(data, what)
    if isinstance(found, dict):
        found = _answered(found, what)
    if not isinstance(found, list):
        raise other_shape(what, "a JSON array of nodes", found)
    return without_placeholders([_node(one, what) for one in found])


def encode_nodes(nodes: Iterable[NodeInfo]) -> bytes:
    return encode_json([asdict(node) for node in nodes])


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
        raise other_shape(what, "a node as a JSON object", value)
    fields = {name: value[name] for name in NodeInfo.__slots__ if name in value}
    if not {"id", "ip"} <= fields.keys() or not all(_fits(name, given) for name, given in fields.items()):
        raise other_shape(what, "a node's id and ip, and its other fields of their types", value)
    return NodeInfo(**fields)


def _fits(name: str, value: object) -> bool:
    if name in ("status", "role", "raft"):
        return type(value) is int and value in _INT32
    if name in ("logid", "serviceid"):
        return type(value) is int and value in _INT64
    return isinstance(value, str)


SERVICE_FILE: Final = "dister.service.db"
"""The file in a leader's data folder; created with the first service."""

Node = Mapping[str, Any]
"""A node's own values: how to reach it, how to check it, and, once checked, its `status`."""

_KEY: Final = re.compile(r"(?P<index>[0-9]{1,18})\.(?P<name>.+)\.service\.dister", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Service:
    """One node of a service."""

    type: str
    node: Node


@dataclass(frozen=True, slots=True)
class ServiceRegistry:
    """Every service by its key, and the id of this state (`LastServiceLogId`, ms); 0 before the first change."""

    id: int = 0
    services: Mapping[str, Service] = field(default_factory=dict)

    def with_nodes(self, name: str, kind: str, nodes: Sequence[Node], now_ms: int) -> ServiceRegistry:
        """Replace all nodes of `name` with these; without nodes, the service is removed."""
        kept = self._without([name])
        if not nodes and len(kept) == len(self.services):
            return self
        new = {key_of(index, name): Service(kind, node) for index, node in enumerate(nodes)}
        return ServiceRegistry(self._next_id(now_ms), kept | new)

    def without(self, names: Collection[str], now_ms: int) -> ServiceRegistry:
        """Remove all nodes of these names; return this same registry if there are none."""
        kept = self._without(names)
        return self if len(kept) == len(self.services) else ServiceRegistry(self._next_id(now_ms), kept)

    def _without(self, names: Collection[str]) -> dict[str, Service]:
        return {key: one for key, one in self.services.items() if parse_key(key)[1] not in names}

    def _next_id(self, now_ms: int) -> int:
        return max(self.id + 1, now_ms)


def key_of(index: int, name: str) -> str:
    return f"{index}.{name}.service.dister"


def parse_key(key: str) -> tuple[int | None, str | None]:
    """Return index and name in a key; None for both if the key has another form."""
    match = _KEY.fullmatch(key)
    return (None, None) if match is None else (int(match["index"]), match["name"])


def decode_services(data: bytes) -> ServiceRegistry:
    """Decode a service file. Raises MasterSilent (half-written), ProtocolViolation (another shape)."""
    found = decode_json(data, SERVICE_FILE)
    match found:
        case {"LastServiceLogId": int(last), "Service": dict(services)} if 0 <= last < 2**63:
            return ServiceRegistry(last, {key: _service(key, value) for key, value in services.items()})
    raise other_shape(SERVICE_FILE, '{"LastServiceLogId":<ms>,"Service":{…}}', found)


def encode_services(registry: ServiceRegistry) -> bytes:
    services = {key: {"type": one.type, "node": one.node} for key, one in registry.services.items()}
    return encode_json({"LastServiceLogId": registry.id, "Service": services})


def _service(key: str, value: object) -> Service:
    match value:
        case {"type": str(kind), "node": dict(node)}:
            return Service(kind, node)
    raise other_shape(f"{key!r} in {SERVICE_FILE}", '{"type":"…","node":{…}}', value)
