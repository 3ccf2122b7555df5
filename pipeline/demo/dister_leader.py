"""``logtwin leader``: shows a dister leader's folder, and writes to it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sources.dister.embedded.leader import EmbeddedLeader, Workload
from sources.dister.embedded.leader_log import apply, entries_of
from sources.dister.layout import ENTRY_LOG, batch_number, batch_path
from sources.dister.metadata import read_nodes, read_services
from sources.dister.states import PEERS_FILE, SERVICE_FILE, Node, NodeInfo, ServiceRegistry, parse_key
from sources.errors import ConfigurationError

_ROLES = {0: "follower", 1: "candidate", 2: "leader"}


@dataclass(frozen=True, slots=True)
class WrittenWorkload:
    """How much a workload has written."""

    entries: int
    last_id: int
    seconds: float

    @property
    def entries_per_s(self) -> float:
        return self.entries / self.seconds if self.seconds else 0.0


def leader_lines(folder: Path) -> Iterator[str]:
    """Lines about the content of a leader's folder, ours or a real one's. Writes nothing.

    Raises ConfigurationError (no such folder), CorruptRecord (a line that is no entry), MasterSilent, ….
    """
    if not any((folder / name).exists() for name in (ENTRY_LOG, SERVICE_FILE, PEERS_FILE)):
        raise ConfigurationError(
            f"no leader keeps its data in {folder}",
            expected=f"{ENTRY_LOG} or {PEERS_FILE} in it",
            found="neither",
            hint=f"logtwin leader set --dir {folder} KEY=VALUE makes one.",
        )
    yield _log_line(folder)
    yield from _service_lines(read_services(folder))
    if (folder / PEERS_FILE).exists():
        yield from map(_node_line, read_nodes(str(folder / PEERS_FILE)))


def fill(leader: EmbeddedLeader, *, count: int, seed: int, rate_per_s: float | None) -> WrittenWorkload:
    """Write `count` entries of a workload, at most `rate_per_s` on average. Raises MasterError."""
    workload = Workload(seed)
    started, written, last_id = time.monotonic(), 0, leader.last_id
    while written < count:
        entry_id = workload.write(leader)
        if entry_id is None:
            continue
        written, last_id = written + 1, entry_id
        if rate_per_s:
            time.sleep(max(0.0, started + written / rate_per_s - time.monotonic()))
    return WrittenWorkload(written, last_id, time.monotonic() - started)


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Parse pairs ``KEY=VALUE``. Raises ConfigurationError for one without ``=``."""
    parted = [pair.partition("=") for pair in pairs]
    for key, separator, _ in parted:
        if not separator:
            raise ConfigurationError("a key has no value", expected="KEY=VALUE", found=repr(key))
    return {key: value for key, _, value in parted}


def parse_node(text: str) -> Node:
    """Parse a node's values. Raises ConfigurationError for text that is no JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError("a node is no JSON object", expected='such as {"host":"10.0.0.7"}', found=repr(text))
    return found


def _log_line(folder: Path) -> str:
    count, last_id, data = 0, 0, dict[str, str]()
    for entry in entries_of(folder):
        apply(entry, data)
        count, last_id = count + 1, entry.id
    where = f", the last is {last_id} in {batch_path(batch_number(last_id))}" if count else ""
    return f"{count:,} entries{where}; {len(data):,} keys"


def _service_lines(registry: ServiceRegistry) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for key, service in registry.services.items():
        names.setdefault(parse_key(key)[1] or key, []).append(service.type)
    for name, types in sorted(names.items()):
        yield f"service {name}: {len(types)} nodes, {', '.join(sorted(set(types)))}; services at {registry.id}"


def _node_line(node: NodeInfo) -> str:
    if node.is_placeholder:
        return f"node {node.ip}: has not spoken yet"
    role, alive = _ROLES.get(node.raft, str(node.raft)), "alive" if node.status else "dead"
    return f"node {node.id} at {node.ip}: {role} of {node.group}, {alive}, version {node.version}"
