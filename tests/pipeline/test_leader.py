"""``logtwin leader``, verb by verb."""

import re
import time
from pathlib import Path

import pytest

from sources.dister.embedded.leader_log import entries_of
from sources.dister.metadata import read_nodes, read_services
from sources.dister.states import PEERS_FILE, NodeInfo, encode_nodes
from tests.dister.odd_leader import replay
from tests.pipeline.operator_at_work import Said, run


def leads(capsys: pytest.CaptureFixture[str], *arguments: object) -> Said:
    return run(capsys, "leader", *arguments)


def test_keys_are_set_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = leads(capsys, "set", "--dir", tmp_path, "--group", "orders", "a=x", "b=1=2", "c=")
    assert said.code == 0
    assert re.fullmatch(r"dister/orders: entry 1\d{4} sets a, b, c\n", said.out)
    said = leads(capsys, "remove", "--dir", tmp_path, "a", "unknown")
    assert re.fullmatch(r"dister/orders: entry 2\d{4} removes a, unknown\n", said.out)
    assert replay(entries_of(tmp_path)) == {"b": "1=2", "c": ""}


def test_services_are_set_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = ("--node", '{"host":"a"}', "--node", '{"host":"b"}')
    said = leads(capsys, "service", "set", "--dir", tmp_path, "web", "--type", "tcp", *nodes)
    assert said.code == 0
    registry = read_services(tmp_path)
    assert said.out == f"dister/default.group.dister: web has 2 nodes; services at {registry.id}\n"
    assert registry.services["1.web.service.dister"].node == {"host": "b"}
    assert leads(capsys, "service", "remove", "--dir", tmp_path, "web", "db").code == 0
    assert read_services(tmp_path).services == {}


def test_nodes_are_added_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = leads(capsys, "peers", "add", "--dir", tmp_path, "10.0.0.1", "10.0.0.2")
    assert said.out == "dister/default.group.dister: 3 nodes\n"
    said = leads(capsys, "peers", "remove", "--dir", tmp_path, "10.0.0.1")
    assert said.out == "dister/default.group.dister: 2 nodes\n"
    assert [node.ip for node in read_nodes(str(tmp_path / PEERS_FILE))] == ["127.0.0.1", "10.0.0.2"]


def test_the_same_seed_fills_two_folders_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        said = leads(capsys, "fill", "--dir", tmp_path / name, "--count", 500, "--seed", 3)
        assert said.code == 0
        assert said.out.startswith("dister/default.group.dister: 500 entries in ")
    one, other = (list(entries_of(tmp_path / name)) for name in ("a", "b"))
    assert one == other
    assert len(one) == 500
    assert said.out.endswith(f"the last is {one[-1].id}\n")


def test_entries_come_no_faster_than_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert leads(capsys, "fill", "--dir", tmp_path, "--count", 4, "--seed", 3, "--rate-per-s", 40).code == 0
    assert time.monotonic() - began >= 4 / 40


def test_what_is_there_is_said_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dister.entry.log" / "0").mkdir(parents=True)
    (tmp_path / "dister.entry.log" / "0" / "1").write_bytes(
        b'1000000000,300,{"a":"x","b":"y"}\n1000010005,310,["a"]\n100'
    )
    (tmp_path / "dister.service.db").write_text(
        '{"LastServiceLogId":77,"Service":{"0.web.service.dister":{"type":"tcp","node":{}},'
        '"1.web.service.dister":{"type":"tcp","node":{}},"odd":{"type":"web","node":{}}}}'
    )
    leader = NodeInfo(id="A1", ip="10.0.0.1", group="orders", status=1, raft=2, version="1.6")
    (tmp_path / PEERS_FILE).write_bytes(encode_nodes([leader, NodeInfo(id="10.0.0.2", ip="10.0.0.2")]))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = leads(capsys, "--dir", tmp_path)
    assert said.code == 0
    assert said.out.splitlines() == [
        "2 entries, the last is 1000010005 in 0/1; 1 keys",
        "service odd: 1 nodes, web; services at 77",
        "service web: 2 nodes, tcp; services at 77",
        "node A1 at 10.0.0.1: leader of orders, alive, version 1.6",
        "node 10.0.0.2: has not spoken yet",
    ]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["set", "a"], "KEY=VALUE"),
        (["set", "--group", "payments", "a=b"], "group 'payments'"),
        (["service", "set", "web", "--type", "tcp", "--node", "[]"], "JSON object"),
        (["service", "set", "web", "--type", "tcp", "--node", "{"], "JSON object"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    """DI-112 among them."""
    leads(capsys, "set", "--dir", tmp_path, "--group", "orders", "a=x")
    said = leads(capsys, *arguments, "--dir", tmp_path)
    assert said.code == 2
    assert expected in said.err
    assert len(list(entries_of(tmp_path))) == 1
    assert read_services(tmp_path).id == 0


def test_a_folder_without_a_leader_is_said_and_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = leads(capsys, "--dir", tmp_path / "none")
    assert said.code == 2
    assert "no leader keeps its data" in said.err
    assert not (tmp_path / "none").exists()
    assert leads(capsys).code == 2
