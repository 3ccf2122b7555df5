"""What an embedded leader writes beside its log, and its role."""

import json
import threading
from pathlib import Path

import pytest

from sources.dister.embedded.leader import EmbeddedLeader
from sources.dister.embedded.leader_log import Change
from sources.dister.states import PEERS_FILE, SERVICE_FILE, check_nodes, decode_nodes
from sources.errors import ConfigurationError, MasterRefused


def listed(folder: Path) -> list[tuple[str, str, int]]:
    """(id, ip, raft) as the file says."""
    return [(node.id, node.ip, node.raft) for node in decode_nodes((folder / PEERS_FILE).read_bytes())]


def services(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / SERVICE_FILE).read_text())
    return found


def test_a_new_folder_has_a_leader_that_passes_the_gate(tmp_path: Path) -> None:
    with EmbeddedLeader(tmp_path / "data", group="orders") as leader:
        (node,) = decode_nodes((tmp_path / "data" / PEERS_FILE).read_bytes())
        assert (node.group, node.version, node.raft, node.status) == ("orders", "1.6", 2, 1)
        check_nodes(leader.nodes(), "orders")
    assert not (tmp_path / "data" / SERVICE_FILE).exists()
    assert not (tmp_path / "data" / "dister.entry.log").exists()  # made with the first entry


def test_a_folder_keeps_its_group_and_node(tmp_path: Path) -> None:
    with EmbeddedLeader(tmp_path, group="orders") as leader:
        before = leader.nodes()
    with EmbeddedLeader(tmp_path) as leader:
        assert (leader.group, leader.nodes()) == ("orders", before)
    with pytest.raises(ConfigurationError, match="another group"):
        EmbeddedLeader(tmp_path, group="payments")


def test_only_a_leader_takes_writes(tmp_path: Path) -> None:
    """DI-10."""
    with EmbeddedLeader(tmp_path) as node:
        node.set({"a": "x"}, rnd=0)
        node.step_down()
        changes: tuple[Change, ...] = ({"a": "y"}, ["a"])
        for change in changes:
            with pytest.raises(MasterRefused, match="not the leader"):
                node.write(change)
        assert [raft for _, _, raft in listed(tmp_path)] == [0]
        node.win_election()
        assert node.set({"a": "y"}, rnd=0) == 20000
        assert [raft for _, _, raft in listed(tmp_path)] == [2]


def test_the_role_is_tested_when_the_turn_comes(tmp_path: Path) -> None:
    """DI-12: a write that waits while the node loses an election is refused."""
    refused: list[bool] = []
    with EmbeddedLeader(tmp_path) as node:

        def write() -> None:
            try:
                node.set({"a": "x"})
            except MasterRefused:
                refused.append(True)

        writers = [threading.Thread(target=write) for _ in range(5)]
        with node._turn():
            for writer in writers:
                writer.start()
            node._is_leader = False
        for writer in writers:
            writer.join()
        assert refused == [True] * 5
        assert node.last_id == 0


def test_services_are_written_at_each_change(tmp_path: Path) -> None:
    """DI-108, DI-109."""
    clock = iter([1000, 1000, 900, 2000, 3000])
    with EmbeddedLeader(tmp_path, now_ms=lambda: next(clock)) as leader:
        assert leader.service_set("web", "tcp", [{"host": "a"}, {"host": "b"}, {"host": "c"}]) == 1000
        assert leader.service_set("web", "tcp", [{"host": "d"}]) == 1001
        assert services(tmp_path) == {
            "LastServiceLogId": 1001,
            "Service": {"0.web.service.dister": {"type": "tcp", "node": {"host": "d"}}},
        }
        assert leader.service_remove(["nobody"]) == 1001  # DI-111
        assert leader.service_remove(["web"]) == 2000
        assert services(tmp_path) == {"LastServiceLogId": 2000, "Service": {}}
    with EmbeddedLeader(tmp_path, now_ms=lambda: 5) as leader:
        assert leader.service_set("db", "mysql", [{}]) == 2001  # also after a restart, with a clock that went back


def test_followers_take_service_and_peer_calls_too(tmp_path: Path) -> None:
    """DI-113."""
    with EmbeddedLeader(tmp_path) as node:
        node.step_down()
        node.service_set("web", "tcp", [{}])
        node.peers_add(["10.0.0.1"])
        assert list(node.services().services) == ["0.web.service.dister"]
        assert len(listed(tmp_path)) == 2


def test_peers_are_added_once_and_removed_by_ip(tmp_path: Path) -> None:
    """DI-106, DI-107; and D-28: the leader stays."""
    with EmbeddedLeader(tmp_path) as leader:
        own = listed(tmp_path)
        leader.peers_add(["10.0.0.1", "10.0.0.2", "10.0.0.1", "127.0.0.1"])
        leader.peers_add(["10.0.0.2"])
        assert listed(tmp_path) == [*own, ("10.0.0.1", "10.0.0.1", 0), ("10.0.0.2", "10.0.0.2", 0)]
        leader.peers_remove(["10.0.0.1", "10.9.9.9", "127.0.0.1"])
        assert listed(tmp_path) == [*own, ("10.0.0.2", "10.0.0.2", 0)]
