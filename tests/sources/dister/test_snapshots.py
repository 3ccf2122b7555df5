"""Whole states as they stand beside a log: in files, and as a node answers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from sources.dister.embedded.leader import EmbeddedLeader
from sources.dister.embedded.leader_log import Change
from sources.dister.metadata import fetch, nodes_of, read_nodes, read_services, services_of
from sources.dister.states import (
    PEERS_FILE,
    SERVICE_FILE,
    NodeInfo,
    Service,
    ServiceRegistry,
    check_nodes,
    decode_nodes,
)
from sources.errors import ConfigurationError, MasterRefused, MasterSilent, MasterUnreachable, ProtocolViolation

LISTED = b'[{"id":"A1","ip":"10.0.0.1","group":"g","raft":2,"version":"1.6"}]'
NODE = NodeInfo(id="A1", ip="10.0.0.1", group="g", raft=2, version="1.6")


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The URL of a node's REST that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *arguments: object) -> None: ...  # noqa: A002  (the name is the base class's)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/node"
        server.shutdown()
        thread.join()


def body(status: int, data: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def test_a_service_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / SERVICE_FILE).mkdir()
    with pytest.raises(MasterUnreachable, match=SERVICE_FILE) as caught:
        read_services(tmp_path)
    assert caught.value.hint


def test_nodes_as_a_node_answers() -> None:
    with answering(body(200, b'{"result":1,"message":"ok","data":' + LISTED + b"}")) as url:
        assert read_nodes(url) == (NODE,)


def test_a_node_that_says_nothing() -> None:
    done = threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        done.wait(30)

    with answering(wait) as url:
        try:
            with pytest.raises(MasterSilent, match="no answer") as caught:
                read_nodes(url, timeout_s=0.1)
        finally:
            done.set()
    assert caught.value.expected == "one within 0.1 s"


def test_a_node_that_breaks_off_or_refuses() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(LISTED)

    with answering(answer) as url, pytest.raises(MasterUnreachable):
        read_nodes(url)
    with answering(body(404, b"")) as url, pytest.raises(MasterRefused, match="found 404"):
        read_nodes(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/node", "http://[", "http:///node"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(MasterUnreachable) as caught:
        read_nodes(url)
    assert caught.value.hint


# as rows of their kinds


def test_a_registry_as_rows() -> None:
    node = {"port": 80, "host": "h", "status": 1}
    found = services_of(ServiceRegistry(77, {"2.a.b.service.dister": Service("web", node), "odd": Service("x", {})}))
    assert found.version == 77
    assert isinstance(found.items, pa.Table)
    assert found.items.to_pylist() == [
        {
            "service_key": "2.a.b.service.dister", "name": "a.b", "index": 2, "type": "web",
            "node": '{"host":"h","port":80,"status":1}', "status": 1, "service_log_id": 77,
        },
        {
            "service_key": "odd", "name": None, "index": None, "type": "x",
            "node": "{}", "status": None, "service_log_id": 77,
        },
    ]  # fmt: skip


@pytest.mark.parametrize("status", ["1", True, 1.0, None, 2**31])
def test_a_status_that_is_no_number_stays_in_the_node_alone(status: object) -> None:
    found = services_of(ServiceRegistry(1, {"0.a.service.dister": Service("custom", {"status": status})})).items
    assert isinstance(found, pa.Table)
    assert found["status"].to_pylist() == [None]


def test_nodes_as_rows() -> None:
    node = NodeInfo(
        id="A", ip="10.0.0.1", group="g", name="n", status=1, role=0, raft=2, logid=10007, serviceid=5, version="1.6"
    )
    found = nodes_of([node]).items
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [
        {
            "id": "A", "name": "n", "group_name": "g", "ip": "10.0.0.1", "status": 1, "role": 0, "raft": 2,
            "version": "1.6", "last_log_id": 10007, "last_service_log_id": 5,
        }
    ]  # fmt: skip


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="dister_services"):
        services_of(ServiceRegistry(1, {"0.a\ud800.service.dister": Service("web", {})}))


def test_what_goes_wrong_with_one_does_not_keep_the_other(tmp_path: Path) -> None:
    """48: a torn service file is an error of this look alone."""
    EmbeddedLeader(tmp_path).close()
    (tmp_path / SERVICE_FILE).write_text('{"LastServiceLogId":')
    services, peers = fetch(str(tmp_path), str(tmp_path / PEERS_FILE))
    assert isinstance(services.items, MasterSilent)
    assert isinstance(peers.items, pa.Table)
    services, peers = fetch(str(tmp_path / "none"), str(tmp_path / "none.json"))
    assert isinstance(services.items, pa.Table)
    assert isinstance(peers.items, MasterUnreachable)


# what an embedded leader writes beside its log, and its role


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
