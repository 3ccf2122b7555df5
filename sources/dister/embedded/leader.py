"""An embedded leader: writes the files of a dister leader, for the demo and tests. One node, and no network.

Its log is `sources.dister.embedded.leader_log`. Beside the log there are whole states, which are replaced atomically,
where dister truncates and writes: ``dister.service.db`` at each change, and a list of nodes like that of REST's
``/node``, written at each change of nodes, services and role, but not when entry ids move on. dister itself has no such
file.

A workload is what a small company keeps in such a store: settings, stock, sessions that come and go. It makes the same
changes for the same seed. Some writes fail: they use an id, and nobody sees them.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from sources.dister.embedded.leader_log import Change, LeaderLog, exchange, told
from sources.dister.metadata import read_nodes, read_services
from sources.dister.states import (
    LEADER,
    PEERS_FILE,
    SERVICE_FILE,
    VERSION,
    Node,
    NodeInfo,
    ServiceRegistry,
    encode_nodes,
    encode_services,
)
from sources.errors import ConfigurationError

DEFAULT_GROUP: Final = "default.group.dister"
FOLLOWER: Final = 0

_OWN_IP: Final = "127.0.0.1"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class EmbeddedLeader(LeaderLog):
    """A node of `group`, which defaults to the folder's group, or else to dister's own default.

    Raises ConfigurationError for a folder of another group.
    """

    def __init__(
        self, folder: Path, *, group: str | None = None, seed: int | None = None, now_ms: Callable[[], int] = _now_ms
    ) -> None:
        listed = _listed(folder)
        self.group = _checked_group(folder, listed, group)
        self._now_ms = now_ms
        self._node_id = listed[0].id if listed else f"{zlib.crc32(bytes(folder.resolve())):X}"
        super().__init__(folder, seed=seed)
        with self._turn():
            self._write_nodes(self._others())

    def step_down(self) -> None:
        """Become a follower, which refuses writes."""
        self._stand(is_leader=False)

    def win_election(self) -> None:
        self._stand(is_leader=True)

    def services(self) -> ServiceRegistry:
        return read_services(self.folder)

    def service_set(self, name: str, kind: str, nodes: Sequence[Node]) -> int:
        """Replace all nodes of a service, of `kind` mysql, pgsql, web, tcp or custom. Return the registry's id."""
        return self._change_services(lambda registry: registry.with_nodes(name, kind, nodes, self._now_ms()))

    def service_remove(self, names: Sequence[str]) -> int:
        """Remove services. Return the registry's id, which moves only if one was there."""
        return self._change_services(lambda registry: registry.without(names, self._now_ms()))

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return this node, then the others."""
        with self._turn():
            return self._all(self._others())

    def peers_add(self, ips: Iterable[str]) -> None:
        """Add a placeholder for each unknown ip, until its node is met."""
        with self._turn():
            others = self._others()
            for ip in ips:
                if all(node.ip != ip for node in self._all(others)):
                    others.append(NodeInfo(id=ip, ip=ip))
            self._write_nodes(others)

    def peers_remove(self, ips: Iterable[str]) -> None:
        """Remove the first node of each ip. A missing one is no error, and the leader itself stays."""
        with self._turn():
            others = self._others()
            for ip in ips:
                found = next((node for node in others if node.ip == ip), None)
                if found is not None:
                    others.remove(found)
            self._write_nodes(others)

    def _stand(self, *, is_leader: bool) -> None:
        with self._turn():
            self._is_leader = is_leader
            self._write_nodes(self._others())

    def _change_services(self, change: Callable[[ServiceRegistry], ServiceRegistry]) -> int:
        with self._turn():
            before = self.services()
            after = change(before)
            if after is not before:
                with told("its services"):
                    exchange(self.folder / SERVICE_FILE, [encode_services(after)])
                self._write_nodes(self._others())
            return after.id

    def _others(self) -> list[NodeInfo]:
        return [node for node in _listed(self.folder) if node.id != self._node_id]

    def _all(self, others: Sequence[NodeInfo]) -> tuple[NodeInfo, ...]:
        own = NodeInfo(
            id=self._node_id,
            ip=_OWN_IP,
            group=self.group,
            name=self.folder.resolve().name,
            status=1,
            raft=LEADER if self._is_leader else FOLLOWER,
            logid=self._last_id,
            serviceid=self.services().id,
            version=VERSION,
        )
        # There is one leader: if it is this node, the former one no longer is.
        return (own, *(replace(node, raft=FOLLOWER) if own.is_leader and node.is_leader else node for node in others))

    def _write_nodes(self, others: Sequence[NodeInfo]) -> None:
        with told("its list of nodes"):
            exchange(self.folder / PEERS_FILE, [encode_nodes(self._all(others))])


def _listed(folder: Path) -> tuple[NodeInfo, ...]:
    path = folder / PEERS_FILE
    return read_nodes(str(path)) if path.exists() else ()


def _checked_group(folder: Path, listed: Sequence[NodeInfo], group: str | None) -> str:
    found = listed[0].group if listed else None
    if found is not None and group not in (None, found):
        raise ConfigurationError(
            f"{folder} is the folder of another group",
            expected=f"group {group!r}",
            found=f"group {found!r}",
            hint="Give another folder, or the group that it has.",
        )
    return found or group or DEFAULT_GROUP


_SHARE_OF_REMOVES: Final = 0.15
_SHARE_OF_SEVERAL: Final = 0.1
_SHARE_OF_FAILED: Final = 0.01
_SESSIONS: Final = 500
_PRODUCTS: Final = ("teapot", "Fahrradkette", "毛笔", "книга", "café crème", 'lamp "Søren"', "<boots> & laces")
_SETTINGS: Final = ("currency", "opening/hours", "mail.footer", "limits/basket", "théme")
_WORDS: Final = ("on", "off", "3 €", "08:00-18:30", "line one\nline two", "a\tb", "—", "", "🚲")


class Workload:
    """The state of one endless sequence of writes."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311  (a workload is no secret)

    def write(self, leader: LeaderLog) -> int | None:
        """Do the next write. Return the entry's id; None if the write failed."""
        change = self._change()
        if self._chance.random() < _SHARE_OF_FAILED:
            leader.fail(change)
            return None
        return leader.write(change)

    def _change(self) -> Change:
        """Return a change that sets or removes one or several keys."""
        several = self._chance.randrange(2, 6) if self._chance.random() < _SHARE_OF_SEVERAL else 1
        if self._chance.random() < _SHARE_OF_REMOVES:
            return [self._session() for _ in range(several)]
        return dict(self._pair() for _ in range(several))

    def _pair(self) -> tuple[str, str]:
        return self._chance.choice((self._setting, self._stock, self._login))()

    def _setting(self) -> tuple[str, str]:
        return f"settings/{self._chance.choice(_SETTINGS)}", self._chance.choice(_WORDS)

    def _stock(self) -> tuple[str, str]:
        return f"stock/{self._chance.choice(_PRODUCTS)}", str(self._chance.randrange(1000))

    def _login(self) -> tuple[str, str]:
        return self._session(), f'{{"user":{self._chance.randrange(100)},"basket":{self._chance.randrange(9)}}}'

    def _session(self) -> str:
        return f"session/{self._chance.randrange(_SESSIONS):04d}"
