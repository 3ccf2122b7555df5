"""Nodes of a group: the list of `/node`, and the gate."""

import json
from dataclasses import replace

import pytest

from sources.dister.states import NodeInfo, check_nodes, decode_nodes, encode_nodes, without_placeholders
from sources.errors import ConfigurationError, MasterRefused, MasterSilent, ProtocolViolation

GROUP = "default.group.dister"
LEADER = NodeInfo(
    id="A1B2", ip="10.0.0.1", group=GROUP, name="one", status=1, raft=2, logid=10007, serviceid=5, version="1.6"
)
FOLLOWER = replace(LEADER, id="FF01", ip="10.0.0.2", name="two", raft=0)
PLACEHOLDER = NodeInfo(id="10.0.0.9", ip="10.0.0.9")
LISTED = (
    b'[{"name":"one","group":"default.group.dister","id":"A1B2","ip":"10.0.0.1","status":1,"role":0,"raft":2,'
    b'"logid":10007,"serviceid":5,"version":"1.6"}]'
)


def test_an_answer_that_says_no() -> None:
    with pytest.raises(MasterRefused, match="no leader yet"):
        decode_nodes(b'{"result":0,"message":"no leader yet","data":null}')


def test_what_is_written_is_read_and_has_the_fields_of_dister() -> None:
    assert decode_nodes(LISTED) == (LEADER,)
    assert decode_nodes(LISTED.replace(b"{", b'{"weight":7,')) == (LEADER,)  # of a dister yet to come
    assert decode_nodes(encode_nodes([LEADER, PLACEHOLDER])) == (LEADER, PLACEHOLDER)
    (fields,) = json.loads(encode_nodes([LEADER]))
    assert set(fields) == {
        "name", "group", "id", "ip", "status", "role", "raft", "logid", "serviceid", "version",
    }  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 30, len(LISTED) - 1])
def test_a_torn_list_is_for_the_next_look(size: int) -> None:
    """DI-105: no change until then."""
    with pytest.raises(MasterSilent, match="not whole"):
        decode_nodes(LISTED[:size])


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "null",
        '{"result":1,"data":{}}',
        "[7]",
        '[{"id":"A"}]',
        '[{"ip":"10.0.0.1"}]',
        '[{"id":1,"ip":"10.0.0.1"}]',
        '[{"id":"A","ip":"10.0.0.1","raft":"leader"}]',
        '[{"id":"A","ip":"10.0.0.1","raft":true}]',
        '[{"id":"A","ip":"10.0.0.1","status":2147483648}]',
        '[{"id":"A","ip":"10.0.0.1","logid":9223372036854775808}]',
    ],
)
def test_json_of_another_shape_does_not_pass_for_nodes(text: str) -> None:
    with pytest.raises(ProtocolViolation, match="another shape"):
        decode_nodes(text.encode())


def test_49_a_placeholder_gives_way_to_the_node_of_its_ip() -> None:
    real = replace(FOLLOWER, id="C3", ip=PLACEHOLDER.ip)
    other = NodeInfo(id="10.0.0.8", ip="10.0.0.8")
    assert without_placeholders([LEADER, PLACEHOLDER, other, real]) == (LEADER, other, real)
    assert decode_nodes(encode_nodes([PLACEHOLDER, real])) == (real,)


def test_the_gate_refuses_another_group() -> None:
    """DI-02, and D-5: not only the sender's."""
    with pytest.raises(ConfigurationError) as caught:
        check_nodes([LEADER, replace(FOLLOWER, group="orders")], GROUP)
    assert caught.value.expected == f"group {GROUP!r}, as the log id says"
    assert caught.value.found == "group 'orders'"
    assert caught.value.hint


def test_the_gate_refuses_a_leader_of_another_version() -> None:
    """DI-03."""
    with pytest.raises(ConfigurationError) as caught:
        check_nodes([FOLLOWER, replace(LEADER, version="1.7")], GROUP)
    assert (caught.value.expected, caught.value.found) == ("version '1.6'", "version '1.7'")
    check_nodes([LEADER, replace(FOLLOWER, version="1.5"), PLACEHOLDER], GROUP)  # its log is not read
    check_nodes([], GROUP)
