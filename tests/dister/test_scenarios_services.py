"""Scenarios 45 to 49: the registry of services and the list of nodes, from the leader's files into their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from sinks.history.metadata import MetadataTable
from sources.dister.peers import LEADER, PEERS_FILE, NodeInfo, encode
from sources.dister.services import SERVICE_FILE, Service, ServiceRegistry
from sources.dister.services import encode as service_file
from sources.errors import LogtwinError, MasterError, MasterSilent
from tests.dister.twin import Twin

FIRST = NodeInfo(id="A1", ip="10.0.0.1", group="g", status=1, raft=LEADER, version="1.6")
SECOND = NodeInfo(id="B2", ip="10.0.0.2", group="g", status=1, version="1.6")
THIRD = NodeInfo(id="C3", ip="10.0.0.3", group="g", status=1, version="1.6")


class Tables:
    """The metadata of a twin's leader: each look is a minute after the one before."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        self._at = datetime(2024, 2, 29, tzinfo=UTC)

    def look(self) -> None:
        """Fetch both kinds and record them. Raises what went wrong with one of them."""
        self._at += timedelta(minutes=1)
        peers = self._twin.folder / PEERS_FILE
        log = replace(self._twin.log, peers=str(peers) if peers.exists() else None)
        for fetched in log.metadata():
            if isinstance(fetched.items, LogtwinError):
                raise fetched.items
            if fetched.items is not None:
                table = MetadataTable(self._twin.spark, str(self._twin.lake), self._twin.log_id, fetched.kind)
                table.record(fetched.items, self._at, fetched.version)

    def write(self, registry_id: int, services: Mapping[str, str]) -> None:
        """The leader's service file: key -> type."""
        registry = ServiceRegistry(registry_id, {key: Service(kind, {"host": kind}) for key, kind in services.items()})
        (self._twin.folder / SERVICE_FILE).write_bytes(service_file(registry))

    def list_nodes(self, *nodes: NodeInfo) -> None:
        (self._twin.folder / PEERS_FILE).write_bytes(encode(nodes))

    def services(self) -> dict[str, str]:
        return {row["service_key"]: row["type"] for row in self._current("dister_services")}

    def nodes(self) -> list[str]:
        return sorted(row["id"] for row in self._current("dister_peers"))

    def versions(self, name: str) -> int:
        """How many versions of items were ever recorded of this log."""
        return len(self._rows(name))

    def _current(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self._rows(name) if row["is_current"]]

    def _rows(self, name: str) -> list[dict[str, Any]]:
        table = DeltaTable(str(self._twin.lake / name)).to_pyarrow_table()
        return [row for row in table.to_pylist() if row["log_id"] == str(self._twin.log_id)]


@pytest.fixture
def tables(twin: Twin) -> Tables:
    return Tables(twin)


WEB, DB = "0.web.service.dister", "0.db.service.dister"


def test_scenario_45_a_registry_with_a_newer_id_replaces_the_whole(tables: Tables) -> None:
    """DI-114, DI-116, DI-117, DI-120, D-26: equal does nothing, older is refused; other content counts."""
    tables.write(100, {WEB: "web", DB: "mysql"})
    tables.look()
    tables.write(200, {WEB: "tcp"})
    tables.look()
    assert tables.services() == {WEB: "tcp"}
    versions = tables.versions("dister_services")
    tables.look()
    assert tables.versions("dister_services") == versions
    tables.write(150, {WEB: "web", DB: "mysql"})
    with pytest.raises(MasterError, match="older"):
        tables.look()
    assert tables.services() == {WEB: "tcp"}
    tables.write(200, {DB: "pgsql"})
    tables.look()
    assert tables.services() == {DB: "pgsql"}


def test_scenario_46_a_set_of_no_nodes_and_a_removal_of_all(twin: Twin, tables: Tables) -> None:
    """DI-110, DI-114, D-27: in dister nobody would hear of the first."""
    with twin.leader() as node:
        node.service_set("web", "tcp", [{"n": 0}, {"n": 1}])
        node.service_set("db", "mysql", [{"n": 0}])
        tables.look()
        assert len(tables.services()) == 3
        node.service_set("web", "tcp", [])
        tables.look()
        assert tables.services() == {DB: "mysql"}
        node.service_remove(["db"])
        tables.look()
        assert tables.services() == {}


def test_scenario_47_holes_in_the_indexes_keep_nothing_alive(twin: Twin, tables: Tables) -> None:
    """D-27: dister stops deleting at the first index that is missing. DI-108: a set replaces all nodes of its name."""
    tables.write(100, {"0.web.service.dister": "tcp", "2.web.service.dister": "tcp"})
    tables.look()
    assert len(tables.services()) == 2
    with twin.leader() as node:
        node.service_set("web", "web", [{"n": 0}])
    tables.look()
    assert tables.services() == {WEB: "web"}


def test_scenario_48_a_torn_service_file_is_not_written_yet(twin: Twin, tables: Tables) -> None:
    """DI-115: the table stays as it was, until the file is whole."""
    tables.write(100, {WEB: "web"})
    tables.look()
    tables.write(200, {DB: "mysql"})
    path = twin.folder / SERVICE_FILE
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(MasterSilent):
            tables.look()
        assert tables.services() == {WEB: "web"}
    path.write_bytes(whole)
    tables.look()
    assert tables.services() == {DB: "mysql"}


def test_scenario_49_nodes_that_are_not_listed_go_and_the_leader_stays(tables: Tables) -> None:
    """DI-102, DI-104, D-28; DI-106: a placeholder, whose id is its ip, gives way to the node that has it."""
    tables.list_nodes(FIRST, SECOND, NodeInfo(id=THIRD.ip, ip=THIRD.ip))
    tables.look()
    assert tables.nodes() == [THIRD.ip, "A1", "B2"]
    tables.list_nodes(NodeInfo(id=THIRD.ip, ip=THIRD.ip), THIRD)
    tables.look()
    assert tables.nodes() == ["A1", "C3"]
