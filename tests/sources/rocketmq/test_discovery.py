"""The logs of a cluster, as scripted name servers list its brokers. Real ones: tests/peers/test_controller_mode.py."""

import pickle
from collections.abc import Mapping

import pytest

from sources.access.address import Address
from sources.discovery import NamePattern
from sources.errors import ConfigurationError, MasterError, MasterRefused, MasterUnreachable, ProtocolViolation
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.rocketmq.discovery import BrokerCluster
from sources.rocketmq.wire.remoting import encode_command
from tests.sources.rocketmq.name_servers import ScriptedNameServer
from tests.sources.rocketmq.scripted_master import ScriptedBroker

NOWHERE = Address("127.0.0.1", 1)


def listing(**clusters: str) -> ScriptedNameServer:
    return ScriptedNameServer({name: dict.fromkeys(brokers.split(",")) for name, brokers in clusters.items()})


def cluster(*name_servers: Address, pattern: NamePattern | None = None) -> BrokerCluster:
    options = ReadOptions(
        id="rocketmq/any", name_server="x:1", on_loss="record", connect_timeout_ms=10_000, connect_attempts=1
    )
    return BrokerCluster(cluster="c1", pattern=pattern or NamePattern(), name_servers=name_servers, options=options)


def names(found: Mapping[LogId, ReadOptions]) -> list[str]:
    assert [one.id for one in found.values()] == [str(log_id) for log_id in found]
    return [log_id.name for log_id in found]


def test_each_broker_name_of_the_cluster_is_a_log_even_without_a_master() -> None:
    with listing(c1="b,a,test-a", c2="z") as server:
        found = cluster(server.address, pattern=NamePattern(exclude=("test-.*",))).find()
    assert names(found) == ["a", "b"]
    assert {one.on_loss for one in found.values()} == {"record"}


def test_all_name_servers_are_asked_because_they_do_not_know_of_each_other(caplog: pytest.LogCaptureFixture) -> None:
    with listing(c1="b") as one, listing(c1="a,b") as other:
        assert names(cluster(one.address, other.address).find()) == ["a", "b"]
        assert caplog.messages == []
        assert names(cluster(one.address, NOWHERE, other.address).find()) == ["a", "b"]
    (said,) = caplog.messages
    assert said.startswith(f"cluster c1 is listed by others than the name server at {NOWHERE}: ")


def test_a_cluster_that_nobody_knows_is_empty_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with listing(c2="b", c0="a") as server:
        assert cluster(server.address).find() == {}
    assert caplog.messages == ["no broker of cluster c1 is registered; the name servers know c0, c2"]


def test_without_a_name_server_that_answers_it_is_not_empty() -> None:
    """It is away, also if another answers that it is none."""
    with ScriptedBroker(lambda request: encode_command(request.response(3))) as wrong:
        with pytest.raises(MasterUnreachable):
            cluster(NOWHERE, wrong.address).find()
        with pytest.raises(ConfigurationError, match="is no name server, but perhaps a broker"):
            cluster(wrong.address).find()


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (0, b'{"brokerAddrTable":{}}', ProtocolViolation),
        (0, b'{"clusterAddrTable":{"c1":"a"}}', ProtocolViolation),
        (1, b"", MasterRefused),
    ],
)
def test_what_is_no_list_of_brokers_is_named(code: int, body: bytes, kind: type[MasterError]) -> None:
    with (
        ScriptedBroker(lambda request: encode_command(request.response(code, body=body))) as server,
        pytest.raises(kind) as caught,
    ):
        cluster(server.address).find()
    assert str(server.address) in str(caught.value)


def test_a_name_that_no_log_can_have_is_an_error_until_it_is_left_out() -> None:
    with listing(c1="a,b c") as server:
        with pytest.raises(ConfigurationError, match="a name that no log can have") as caught:
            cluster(server.address).find()
        assert "'b c'" in str(caught.value)
        assert names(cluster(server.address, pattern=NamePattern(exclude=("b .*",))).find()) == ["a"]


def test_an_entry_is_a_value_that_travels() -> None:
    entry = cluster(NOWHERE)
    assert pickle.loads(pickle.dumps(entry)) == entry  # noqa: S301 - our own
    assert entry.only(LogId("rocketmq", "a")).options_of(LogId("rocketmq", "b")) is None
