"""The service registry of a leader, ``dister.service.db``, and the effects of SET and REMOVE on it. Pure.

::

    {"LastServiceLogId":<ms>,"Service":{"<index>.<name>.service.dister":{"type":"…","node":{…}},…}}

What must hold: a registry's id grows with every change, so a greater id means a newer registry. dister uses the wall
clock in ms, which may stand still or go back; here an id is at least one more than the id before. dister's SET without
nodes deletes without a new id, so nobody notices, and deletes only up to the first missing index; here every node of
the name is deleted, and every change has its id. The format is that of `saveServiceToFile`, v1.6.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sources.dister import whole_states

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


def decode(data: bytes) -> ServiceRegistry:
    """Decode a service file. Raises MasterSilent (half-written), ProtocolViolation (another shape)."""
    found = whole_states.decode(data, SERVICE_FILE)
    match found:
        case {"LastServiceLogId": int(last), "Service": dict(services)} if 0 <= last < 2**63:
            return ServiceRegistry(last, {key: _service(key, value) for key, value in services.items()})
    raise whole_states.other_shape(SERVICE_FILE, '{"LastServiceLogId":<ms>,"Service":{…}}', found)


def encode(registry: ServiceRegistry) -> bytes:
    services = {key: {"type": one.type, "node": one.node} for key, one in registry.services.items()}
    return whole_states.encode({"LastServiceLogId": registry.id, "Service": services})


def _service(key: str, value: object) -> Service:
    match value:
        case {"type": str(kind), "node": dict(node)}:
            return Service(kind, node)
    raise whole_states.other_shape(f"{key!r} in {SERVICE_FILE}", '{"type":"…","node":{…}}', value)
