"""Where a broker is: as given, or as a name server says (real: tests/peers/test_controller_mode.py); and its client."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from sources.access.address import Address
from sources.access.security import Secret, Tls
from sources.errors import (
    ConfigurationError,
    LogtwinError,
    MasterError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
)
from sources.offsets import Offset
from sources.options import MasterOptions
from sources.registry import open_log
from sources.rocketmq.remote_broker import BrokerAt, ElectedBroker, NamedBroker
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.connection import connect, connect_securely, finished
from sources.rocketmq.wire.remoting import Command, RequestCode, encode_command
from sources.rocketmq.wire.security import RemotingSecurity
from tests.deaf_port import deaf_port
from tests.patience import wait_until
from tests.sources.rocketmq.name_servers import ScriptedNameServer
from tests.sources.rocketmq.scripted_master import ScriptedBroker, ScriptedMaster, answer_as, holding
from tests.sources.rocketmq.sessions import stay, up_to
from tests.spans import span
from tests.truth import Fixture

NOWHERE, OTHER = Address("127.0.0.1", 1), Address("10.0.0.8", 10911)


def knowing(**brokers: Address | None) -> ScriptedNameServer:
    """A name server with these brokers, whose names are "broker-…"; one without a master has a slave, with id 7."""
    return ScriptedNameServer({"c1": {f"broker-{name}": at for name, at in brokers.items()}})


def listening_at(ha: Address) -> Callable[[Command], bytes]:
    return holding(0, 5000, brokerIP2=ha.host, haListenPort=ha.port)


def named(*name_servers: Address) -> NamedBroker:
    return NamedBroker(name="broker-a", asked=name_servers, connect_timeout_ms=10_000, connect_attempts=1)


def test_given_addresses_are_used() -> None:
    """MS-12: who is told where its master is asks nobody else."""
    broker = BrokerAt(master=Address("10.0.0.5", 10912), broker=Address("10.0.0.5", 10911))
    assert (broker.ha(), broker.remoting()) == (Address("10.0.0.5", 10912), Address("10.0.0.5", 10911))
    assert broker.address == "10.0.0.5:10912"


def test_a_master_is_found_by_its_name() -> None:
    """MS-13: who is not asks a name server, and the broker itself for its HA address."""
    ha = Address("10.0.0.6", 12345)
    with ScriptedBroker(listening_at(ha)) as broker, knowing(a=broker.address, b=OTHER) as name_server:
        found = named(name_server.address)
        assert found.remoting() == broker.address
        assert found.ha() == ha
        assert named(NOWHERE).ha({"brokerIP2": ha.host, "haListenPort": str(ha.port)}) == ha  # nobody is asked again
        assert found.bounds().end == found.maximum() == 5000
        assert found.address == f"broker-a at name server {name_server.address}"


def test_a_master_that_moves_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """MS-13, HA-11: it is looked for at each connection; the session's goes on until it breaks."""
    # Nobody is at the first name server, whatever the pause between two attempts.
    monkeypatch.setattr("sources.rocketmq.wire.connection.FIRST_PAUSE_S", 0.0)
    with ExitStack() as stack:
        old, new = (stack.enter_context(ScriptedMaster(stay)) for _ in range(2))
        at_old, at_new = (stack.enter_context(ScriptedBroker(listening_at(ha.address))) for ha in (old, new))
        name_server = stack.enter_context(knowing(a=at_old.address))
        options = MasterOptions(
            id="rocketmq/broker-a", name_server=f"{NOWHERE}; {name_server.address}", connect_timeout_ms=10_000
        )
        session = open_log(options).open_session()
        stack.callback(session.close)
        session.acknowledge(up_to(100))
        first = old.await_connection(1)
        first.await_report_of(100)
        name_server.clusters["c1"] = {"broker-a": at_new.address}
        session.acknowledge(up_to(200))
        first.await_report_of(200)
        assert new.connections == []
        first.reset()
        new.await_connection(1).await_report_of(200)


@pytest.mark.parametrize("elected", ["true", "false"])
def test_bounds_in_steps_need_a_kept_connection_and_one_answer(elected: str) -> None:
    """So whoever asks many brokers never waits for one. Of an elected broker more has to be asked."""
    with ScriptedBroker(holding(0, 5000, enableControllerMode=elected)) as one:
        broker = BrokerAt(master=NOWHERE, broker=one.address)
        assert broker.bounds_in_steps(None) is None
        bounds = broker.bounds()
        for known, wanted in ((None, bounds), (Offset(5000), bounds), (Offset(4000), None)):
            steps = broker.bounds_in_steps(known)
            assert steps is not None
            assert finished(steps) == wanted
        broker.config()
        steps = broker.bounds_in_steps(Offset(4000))
        assert steps is not None
        assert finished(steps) == (None if elected == "true" else bounds)
    assert len(one.requests) == 6


@pytest.mark.parametrize(
    ("known", "found"), [({"a": None}, "ids 7"), ({"b": OTHER}, "brokers broker-b"), ({}, "brokers none")]
)
def test_a_broker_without_a_master_may_have_one_later(known: dict[str, Address | None], found: str) -> None:
    with (
        knowing(**known) as name_server,
        pytest.raises(MasterUnreachable, match="knows no master of broker-a") as caught,
    ):
        named(name_server.address).remoting()
    assert caught.value.is_transient
    assert caught.value.found == found
    assert caught.value.hint


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (0, "[]", ProtocolViolation),
        (0, "{}", ProtocolViolation),
        (1, "what?", MasterError),
        (0, '{"brokerAddrTable":{"broker-a":[1]}}', ProtocolViolation),
        (0, '{"brokerAddrTable":{"broker-a":{"brokerAddrs":7}}}', ProtocolViolation),
        (0, '{"brokerAddrTable":{"broker-a":{"brokerAddrs":"0"}}}', ProtocolViolation),
    ],
)
def test_what_is_no_name_server_is_named(code: int, body: str, kind: type[MasterError]) -> None:
    def answer(request: Command) -> bytes:
        return encode_command(request.response(code, body=body.encode()))

    with ScriptedBroker(answer) as name_server, pytest.raises(kind) as caught:
        named(name_server.address).remoting()
    assert str(name_server.address) in str(caught.value)


def not_knowing(request: Command) -> bytes:
    """As a broker answers a question that is none of its own."""
    return encode_command(request.response(3, remark=f" request type {request.code} not supported"))


def test_a_broker_in_the_place_of_a_name_server_is_called_one() -> None:
    """It does not know the question (106): that is no refusal, and waiting does not help."""
    with ScriptedBroker(not_knowing) as one, pytest.raises(ConfigurationError) as caught:
        named(one.address).remoting()
    assert caught.value.problem == f"what answers at {one.address} is no name server, but perhaps a broker"
    assert "master and remoting" in (caught.value.hint or "")
    with ScriptedBroker(not_knowing) as one, pytest.raises(ConfigurationError, match="is no controller"):
        elected(one.address).remoting()


def test_a_wrong_name_server_does_not_hide_one_that_is_away() -> None:
    with ScriptedBroker(not_knowing) as wrong, knowing() as ignorant, knowing(a=OTHER) as right:
        with pytest.raises(MasterUnreachable, match="knows no master"):
            named(ignorant.address, wrong.address).remoting()
        assert named(wrong.address, right.address).remoting() == OTHER


def controller(code: int, **fields: str) -> Callable[[Command], bytes]:
    """Answers 1004 with these, and nothing else."""

    def answer(request: Command) -> bytes:
        assert (request.code, request.ext_fields) == (1004, {"brokerName": "broker-a"})
        return encode_command(request.response(code, ext_fields=fields, remark="not the leader" if code else None))

    return answer


def elected(*controllers: Address) -> ElectedBroker:
    return ElectedBroker(name="broker-a", asked=controllers, connect_timeout_ms=10_000, connect_attempts=1)


def test_the_leader_of_the_controllers_names_the_master() -> None:
    leader = controller(0, masterAddress="10.0.0.8:10911", masterBrokerId="2", masterEpoch="7")
    with ScriptedBroker(controller(2007)) as one, ScriptedBroker(leader) as other:
        broker = elected(one.address, other.address)
        assert broker.remoting() == Address("10.0.0.8", 10911)
        assert broker.address == f"broker-a at controller {one.address};{other.address}"


@pytest.mark.parametrize(("code", "found"), [(2007, "not the leader"), (0, "code 0")], ids=["follower", "no master"])
def test_a_controller_that_knows_no_master_is_named(code: int, found: str) -> None:
    with ScriptedBroker(controller(code)) as one, pytest.raises(MasterUnreachable, match="name all of them") as caught:
        elected(one.address).remoting()
    assert str(one.address) in str(caught.value)
    assert caught.value.found == found


def test_a_broker_is_asked_over_one_connection_until_it_restarts() -> None:
    with ScriptedBroker(holding(0, 5)) as broker:
        asked = BrokerAt(master=NOWHERE, broker=broker.address, connect_attempts=1)
        assert [asked.maximum(), asked.maximum(), asked.bounds().end] == [5, 5, 5]
        assert broker.accepted == 1
        with asked.client() as kept:
            pass
        broker.hang_up()
        wait_until(lambda: not kept.is_whole(), "the end of the connection")
        assert asked.maximum() == 5
        assert broker.accepted == 2


def test_new_secrets_take_effect_at_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "one")
    monkeypatch.setenv("SECRET", "two")
    security = RemotingSecurity(access_key=Secret("env:KEY"), secret_key=Secret("env:SECRET"))
    with ScriptedBroker(holding(0, 5)) as broker:
        asked = BrokerAt(master=NOWHERE, broker=broker.address, security=security)
        asked.maximum()
        monkeypatch.setenv("KEY", "three")
        asked.maximum()
        assert [one.ext_fields["AccessKey"] for one in broker.requests] == ["one", "three"]
        monkeypatch.delenv("KEY")
        with pytest.raises(ConfigurationError, match="no secret"):
            asked.maximum()


# the remoting client against brokers that answer as told


PATIENT: dict[str, Any] = {"connect_timeout_ms": 10_000, "connect_attempts": 2, "call_timeout_ms": 10_000}


def answering(*, code: int = 0, body: str = "", remark: str | None = None) -> Callable[[Command], bytes]:
    return lambda request: encode_command(request.response(code, body=body.encode(), remark=remark))


@contextmanager
def asking(answer: Callable[[Command], bytes]) -> Iterator[RemotingClient]:
    with ScriptedBroker(answer) as broker, RemotingClient(broker.address, **PATIENT) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('{"table":{"commitLogMaxOffset":"5"}}', "commitLogMinOffset"),
        ('{"rows":{}}', "table"),
        ("[]", "table"),
        ("{", "JSON"),
    ],
)
def test_a_runtime_info_without_bounds_is_a_protocol_violation(body: str, named: str) -> None:
    with asking(answering(body=body)) as client, pytest.raises(ProtocolViolation, match=named):
        client.commit_log_bounds()


def test_a_broker_that_has_just_booted_is_asked_again() -> None:
    codes = iter([1, 1])
    bounds = holding(0, 229)

    def answer(request: Command) -> bytes:
        for code in codes:
            return encode_command(request.response(code, remark="java.util.NoSuchElementException"))
        return bounds(request)

    with asking(answer) as client:
        assert client.commit_log_bounds() == span(0, 229)


def test_a_broker_that_fails_for_good_is_not_asked_for_ever() -> None:
    with (
        ScriptedBroker(answering(code=1, remark="java.lang.Error")) as broker,
        RemotingClient(broker.address, call_timeout_ms=300) as client,
        pytest.raises(MasterRefused) as caught,
    ):
        client.runtime_info()
    assert "28 GET_BROKER_RUNTIME_INFO" in caught.value.problem
    assert caught.value.found == "code 1 SYSTEM_ERROR: java.lang.Error"
    assert len(broker.requests) > 1


def test_what_the_broker_sends_unasked_is_not_taken_for_an_answer() -> None:
    def answer(request: Command) -> bytes:
        push = Command(40, opaque=request.opaque)
        late = Command(0, opaque=request.opaque - 1, flag=1, body=b"late")
        return b"".join(map(encode_command, (push, late, request.response(0, body=b"right"))))

    with asking(answer) as client:
        assert client.call(Command(RequestCode.GET_BROKER_CONFIG)).body == b"right"
        assert client.call(Command(RequestCode.GET_BROKER_CONFIG)).body == b"right"


def test_chatter_does_not_prolong_the_wait_for_an_answer() -> None:
    class Chatting(ScriptedBroker):
        def serve(self, sock: socket.socket) -> None:
            while True:
                sock.sendall(encode_command(Command(40)))

    with (
        Chatting(lambda _: b"") as broker,
        RemotingClient(broker.address, call_timeout_ms=200) as client,
        pytest.raises(MasterSilent) as caught,
    ):
        client.runtime_info()
    assert caught.value.expected == "an answer within 0.2 s"
    assert str(broker.address) in caught.value.problem
    assert caught.value.is_transient


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(encode_command(Command(0, flag=1))[:9], MasterUnreachable), (b"HTTP/1.1 400 Bad Request", ProtocolViolation)],
)
def test_a_broken_conversation_is_an_error(answer: bytes, kind: type[LogtwinError]) -> None:
    class Hanging(ScriptedBroker):
        def serve(self, sock: socket.socket) -> None:
            sock.recv(4096)
            sock.sendall(answer)

    with Hanging(lambda _: b"") as broker, RemotingClient(broker.address, **PATIENT) as client, pytest.raises(kind):
        client.runtime_info()


def test_a_port_where_nobody_listens_is_unreachable_after_all_attempts() -> None:
    address = Address("127.0.0.1", deaf_port())
    with pytest.raises(MasterUnreachable) as caught:
        connect(address, timeout_ms=1000, attempts=3)
    assert caught.value.problem == f"cannot connect to {address}, 3 attempts"
    assert "refused" in str(caught.value.found)
    assert caught.value.hint


def test_a_later_attempt_may_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo
    answers = iter([OSError("name server away"), OSError("still away")])

    def failing_at_first(host: str, port: int, **options: socket.SocketKind) -> object:
        for error in answers:
            raise error
        return look_up(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", failing_at_first)
    with ScriptedBroker(lambda _: b"") as broker, connect(broker.address, timeout_ms=1000, attempts=3) as connection:
        assert connection.getpeername()[1] == broker.address.port


def test_a_broker_that_breaks_off_the_handshake_of_tls_is_unreachable() -> None:
    class Leaving(ScriptedBroker):
        def serve(self, sock: socket.socket) -> None:
            sock.recv(4096)

    with Leaving(lambda _: b"") as broker, pytest.raises(MasterUnreachable, match=f"no TLS with {broker.address}"):
        connect_securely(broker.address, Tls(), timeout_ms=10_000)


@pytest.mark.parametrize(
    "status",
    ["[]", *(f'{{"haConnectionInfo":{slaves}}}' for slaves in ("7", '"all"', "[7]", "[{}]")),
     *(f'{{"haConnectionInfo":[{{"slaveAckOffset":{text}}}]}}' for text in ("null", "1e999", "[]", '"x"'))],
)  # fmt: skip
def test_a_status_that_is_none_and_slaves_without_an_offset_are_a_violation(status: str) -> None:
    problem = r"the HA status of the broker at .* is none" if status == "[]" else "a slave without offset"
    with asking(answering(body=status)) as client, pytest.raises(ProtocolViolation, match=problem):
        client.highest_slave_offset()


def test_a_real_ha_status_is_read(fixture_550: Fixture) -> None:
    with asking(answer_as(fixture_550.wire("907-with-slave.resp.bin"))) as client:
        status = client.ha_status()
        assert status is not None
        assert status["master"] is True
        assert client.highest_slave_offset() == status["haConnectionInfo"][0]["slaveAckOffset"]


def test_the_brokers_configuration_is_read_from_its_properties_as_they_are_now() -> None:
    """Over one connection: it is reconfigured while it runs."""
    said = ["messageDelayLevel=1s 5s\nextra=a=b\n\n"] * 2 + ["enableControllerMode=true\n"]
    with asking(lambda request: answering(body=said.pop(0))(request)) as client:
        for _ in range(2):
            assert client.broker_config() == {"messageDelayLevel": "1s 5s", "extra": "a=b"}
            assert client.elected is False
        assert client.broker_config() == {"enableControllerMode": "true"}
        assert client.elected is True
