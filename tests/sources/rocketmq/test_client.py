"""The remoting client against brokers that answer as told."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sources.access.address import Address
from sources.access.tls import Tls
from sources.errors import LogtwinError, MasterRefused, MasterSilent, MasterUnreachable, ProtocolViolation
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.connection import connect, connect_securely
from sources.rocketmq.wire.remoting import Command, RequestCode, encode_command
from tests.deaf_port import deaf_port
from tests.sources.rocketmq.scripted_master import ScriptedBroker, answer_as, holding
from tests.spans import span
from tests.truth import Fixture

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
        ('{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"many"}}', "commitLogMaxOffset"),
        ('{"table":{"commitLogMinOffset":"9","commitLogMaxOffset":"5"}}', "at or above 9"),
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


def test_the_brokers_configuration_is_read_from_its_properties() -> None:
    body = "messageDelayLevel=1s 5s\nextra=a=b\n\n"
    with asking(answering(body=body)) as client:
        assert client.broker_config() == {"messageDelayLevel": "1s 5s", "extra": "a=b"}
