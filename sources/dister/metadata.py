"""A dister leader's metadata as rows: all of its services and all of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sources.dister.snapshots import read_nodes, read_services
from sources.dister.states import Node, NodeInfo, Service, ServiceRegistry, other_shape, parse_key, sorted_text
from sources.errors import LogtwinError
from sources.metadata import DISTER_PEERS, DISTER_SERVICES, FetchedMetadata, MetadataKind

_STATUSES: Final = range(-(2**31), 2**31)

_Row = dict[str, Any]


def fetch(path: str, peers: str | None) -> Iterator[FetchedMetadata]:
    """Yield both kinds: the services of the leader that keeps its data in `path`, and the nodes listed in `peers`.

    If a kind fails, its result holds the error. Without `peers` nobody knows the nodes.
    """
    yield _fetched(DISTER_SERVICES, lambda: services_of(read_services(Path(path))))
    yield _fetched(
        DISTER_PEERS, lambda: FetchedMetadata(DISTER_PEERS, None) if peers is None else nodes_of(read_nodes(peers))
    )


def services_of(registry: ServiceRegistry) -> FetchedMetadata:
    """Return a registry as rows. Raises ProtocolViolation for invalid text."""
    rows = (_service(key, one, registry.id) for key, one in registry.services.items())
    return FetchedMetadata(DISTER_SERVICES, _table(DISTER_SERVICES, rows), registry.id)


def nodes_of(nodes: Iterable[NodeInfo]) -> FetchedMetadata:
    """Return nodes as rows. Raises ProtocolViolation for invalid text."""
    return FetchedMetadata(DISTER_PEERS, _table(DISTER_PEERS, map(_node, nodes)))


def _fetched(kind: MetadataKind, ask: Callable[[], FetchedMetadata]) -> FetchedMetadata:
    try:
        return ask()
    except LogtwinError as error:
        return FetchedMetadata(kind, error)


def _table(kind: MetadataKind, rows: Iterable[_Row]) -> pa.Table:
    try:
        return pa.Table.from_pylist(list(rows), schema=kind.schema)
    except (pa.ArrowException, ValueError) as error:  # half a surrogate pair
        raise other_shape(kind.name, f"rows of {', '.join(kind.schema.names)}", error) from error


def _service(key: str, service: Service, registry_id: int) -> _Row:
    index, name = parse_key(key)
    return {
        "service_key": key,
        "name": name,
        "index": index,
        "type": service.type,
        "node": sorted_text(service.node),
        "status": _status(service.node),
        "service_log_id": registry_id,
    }


def _status(node: Node) -> int | None:
    """Return the status that the leader's health check set; that of a custom check may not be a number."""
    found = node.get("status")
    return found if type(found) is int and found in _STATUSES else None


def _node(node: NodeInfo) -> _Row:
    return {
        "id": node.id,
        "name": node.name,
        "group_name": node.group,
        "ip": node.ip,
        "status": node.status,
        "role": node.role,
        "raft": node.raft,
        "version": node.version,
        "last_log_id": node.logid,
        "last_service_log_id": node.serviceid,
    }
