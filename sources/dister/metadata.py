"""A dister leader's metadata: all of its services and all of its nodes, as it has them now and as rows.

Each look opens the file, or asks the node, again; nothing is kept.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sources.dister.states import (
    SERVICE_FILE,
    Node,
    NodeInfo,
    Service,
    ServiceRegistry,
    decode_nodes,
    decode_services,
    other_shape,
    parse_key,
    sorted_text,
)
from sources.errors import LogtwinError, MasterError, MasterRefused, MasterSilent, MasterUnreachable
from sources.metadata import DISTER_PEERS, DISTER_SERVICES, FetchedMetadata, MetadataKind

TIMEOUT_S: Final = 6.0
"""dister's own read timeout."""


def read_services(folder: Path) -> ServiceRegistry:
    """Return the registry of the leader that keeps its data in `folder`; an empty one if it has no service file.

    Raises MasterSilent (half-written), MasterUnreachable (unreadable), ProtocolViolation.
    """
    path = folder / SERVICE_FILE
    return decode_services(_read(path)) if path.exists() else ServiceRegistry()


def read_nodes(where: str, timeout_s: float = TIMEOUT_S) -> tuple[NodeInfo, ...]:
    """Return the nodes listed `where`: a file, or the http URL of a node's ``/node``.

    Raises MasterUnreachable, MasterSilent (no answer in time, or half-written), MasterRefused, ProtocolViolation.
    """
    is_url = where.startswith(("http://", "https://"))
    return decode_nodes(_asked(where, timeout_s) if is_url else _read(Path(where)), where)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "Check `path` and `peers`, and who may read there."
        raise MasterUnreachable(f"{path} cannot be read", found=error.strerror, hint=hint) from error


def _asked(url: str, timeout_s: float) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310  (http only: the caller looked)
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise MasterRefused(f"{url} does not list its peers", expected="200", found=error.code) from error
    except (HTTPException, OSError, ValueError) as error:  # a URLError is an OSError; ValueError: no usable URL
        raise _unanswered(url, timeout_s, error) from error


def _unanswered(url: str, timeout_s: float, error: Exception) -> MasterError:
    reason = getattr(error, "reason", error)  # of a URLError
    if isinstance(reason, TimeoutError):
        return MasterSilent(f"no answer from {url}", expected=f"one within {timeout_s:g} s", found=reason)
    return MasterUnreachable(
        f"{url} cannot be asked for the nodes",
        found=reason,
        hint="Check `peers`: dister answers REST at port 4168, on its own host only.",
    )


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
