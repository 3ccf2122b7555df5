"""Services and nodes of a dister leader: from the files that it writes into tables with history."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.history.metadata import MetadataTable
from sources.dister.embedded.leader import EmbeddedLeader
from sources.dister.metadata import fetch
from sources.dister.states import PEERS_FILE, SERVICE_FILE, NodeInfo, Service, ServiceRegistry, encode_nodes
from sources.dister.states import encode_services as service_file
from sources.errors import LogtwinError, MasterError
from sources.offsets import LogId

LOG = LogId("dister", "orders")
START = datetime(2024, 2, 29, 12, tzinfo=UTC)
LEADER = NodeInfo(id="A1", ip="10.0.0.1", group="orders", status=1, raft=2, logid=10007, version="1.6")


class Replica:
    """The tables of a leader's services and nodes; each look is a minute after the one before."""

    def __init__(self, plain: SparkSession, folder: Path) -> None:
        self._spark = plain
        self.leader = folder / "leader"
        self.leader.mkdir()
        self.warehouse = folder / "lake"
        self._at = START

    def look(self) -> tuple[int, int]:
        """Fetch and record both, with tables opened anew. Returns how many versions began or ended of each."""
        self._at += timedelta(minutes=1)
        peers = self.leader / PEERS_FILE
        changed = []
        for fetched in list(fetch(str(self.leader), str(peers) if peers.exists() else None)):
            if isinstance(fetched.items, LogtwinError):
                raise fetched.items
            table = MetadataTable(self._spark, str(self.warehouse), LOG, fetched.kind)
            changed.append(0 if fetched.items is None else table.record(fetched.items, self._at, fetched.version))
        return changed[0], changed[1]

    def services(self, registry: ServiceRegistry) -> int:
        """The leader writes these services; then a look."""
        (self.leader / SERVICE_FILE).write_bytes(service_file(registry))
        return self.look()[0]

    def nodes(self, *nodes: NodeInfo) -> int:
        """The leader lists these nodes; then a look."""
        (self.leader / PEERS_FILE).write_bytes(encode_nodes(nodes))
        return self.look()[1]

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(str(self.warehouse / name)).to_pyarrow_table().to_pylist()
        return found

    def current(self, name: str, column: str) -> list[Any]:
        return sorted(row[column] for row in self.rows(name) if row["is_current"])

    def commits(self, name: str) -> int:
        return int(DeltaTable(str(self.warehouse / name)).version())


@pytest.fixture
def replica(plain: SparkSession, tmp_path: Path) -> Replica:
    return Replica(plain, tmp_path)


def registry(last: int, **types: str) -> ServiceRegistry:
    return ServiceRegistry(
        last, {f"0.{name}.service.dister": Service(kind, {"host": name}) for name, kind in types.items()}
    )


def test_45_a_newer_registry_replaces_and_an_older_one_is_refused(replica: Replica) -> None:
    """DI-114, DI-116, DI-117, DI-120, D-26."""
    assert replica.services(registry(100, web="web", db="mysql")) == 2
    assert replica.services(registry(200, web="tcp")) == 3  # web anew, db gone
    assert replica.current("dister_services", "type") == ["tcp"]
    commits = replica.commits("dister_services")
    assert replica.services(registry(200, web="tcp")) == 0  # equal id, equal content
    assert replica.commits("dister_services") == commits
    with pytest.raises(MasterError, match="older than the recorded ones") as caught:
        replica.services(registry(199, web="web", db="mysql"))
    assert (caught.value.expected, caught.value.found) == ("version 200 or a later one", "version 199")
    assert caught.value.log == "dister/orders"
    assert caught.value.hint
    assert replica.commits("dister_services") == commits
    assert replica.services(registry(200, web="web")) == 2  # equal id, other content: the same millisecond
    assert replica.current("dister_services", "type") == ["web"]
    history = sorted((row["valid_from"], row["type"], row["service_log_id"]) for row in replica.rows("dister_services"))
    assert [(kind, last) for _, kind, last in history] == [("mysql", 100), ("web", 100), ("tcp", 200), ("web", 200)]


def test_45_an_id_that_moves_alone_is_remembered(replica: Replica) -> None:
    assert replica.services(registry(100, web="web")) == 1
    assert replica.services(registry(300, web="web")) == 0
    with pytest.raises(MasterError, match="older"):
        replica.services(registry(200, web="tcp"))
    assert replica.current("dister_services", "type") == ["web"]


def test_46_47_what_the_leader_does_is_what_the_table_says(replica: Replica) -> None:
    """DI-119: Nodes of a name are replaced, a set of none removes them, across holes in their indexes."""
    with EmbeddedLeader(replica.leader, group="orders") as leader:
        leader.service_set("web", "tcp", [{"n": 0}, {"n": 1}, {"n": 2}])
        replica.look()
        assert replica.current("dister_services", "node") == ['{"n":0}', '{"n":1}', '{"n":2}']
        whole = leader.services()
        hole = {key: one for key, one in whole.services.items() if not key.startswith("1.")}
        (replica.leader / SERVICE_FILE).write_bytes(service_file(ServiceRegistry(whole.id, hole)))
        replica.look()
        assert replica.current("dister_services", "index") == [0, 2]
        leader.service_set("web", "tcp", [])
        assert replica.look() == (2, 0)
        assert replica.current("dister_services", "node") == []


def test_49_who_is_not_listed_goes_and_the_leader_stays(replica: Replica) -> None:
    """DI-102, DI-104, D-28: the list that a leader sends lacks the leader."""
    one, two = (NodeInfo(id=node, ip=ip, group="orders") for node, ip in (("B2", "10.0.0.2"), ("C3", "10.0.0.3")))
    assert replica.nodes(LEADER, one, two) == 3
    assert replica.nodes(one) == 1  # two has gone, the leader is not listed
    assert replica.current("dister_peers", "id") == ["A1", "B2"]
    assert replica.nodes(replace(one, raft=2)) == 3  # another leader, so the old one is a node like others
    assert replica.current("dister_peers", "id") == ["B2"]


def test_ids_of_nodes_that_move_with_every_entry_begin_no_version(replica: Replica) -> None:
    """DI-103."""
    assert replica.nodes(LEADER) == 1
    assert replica.nodes(replace(LEADER, logid=20007, serviceid=9)) == 0
    (row,) = replica.rows("dister_peers")
    assert row["last_log_id"] == 10007
    assert replica.nodes(replace(LEADER, ip="10.0.0.7")) == 2
