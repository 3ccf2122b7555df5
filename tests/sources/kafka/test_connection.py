"""Connecting to what is no broker, or none that answers: which error it is, and that every wait has a limit."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from sources.access.security import Secret, Tls
from sources.errors import (
    ConfigurationError,
    LogtwinError,
    MasterSilent,
    MasterUnreachable,
    NobodyListens,
    ProtocolViolation,
)
from sources.kafka.cluster import connection as module
from sources.kafka.cluster.connection import connected, has_answered, kept
from sources.kafka.cluster.settings import KafkaSettings, Security
from sources.kafka.topic import KafkaTopic
from tests.deaf_port import deaf_port
from tests.sources.rocketmq.scripted_master import Server

PLAIN, TLS = Security(), Security(protocol="SSL")
PATIENT_MS = 60_000
SHORT_MS = 100  # for who is silent anyway


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key.pem"
    trustme.CA().issue_cert("us.example").private_key_and_cert_chain_pem.write_to_path(file)
    return file


class Door(Server):
    """A port that takes connections and keeps them: silent, or with a greeting, after which it may say no more."""

    def __init__(self, greeting: bytes = b"", *, hangs_up: bool = False) -> None:
        super().__init__()
        self._greeting = greeting
        self._hangs_up = hangs_up

    def serve(self, sock: socket.socket) -> None:
        sock.sendall(self._greeting)
        if self._hangs_up:
            sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass


def error_of(
    *servers: object, security: Security = PLAIN, attempts: int = 1, limit_ms: int = PATIENT_MS
) -> LogtwinError:
    settings = KafkaSettings(
        servers=tuple(map(str, servers)),
        security=security,
        connect_timeout_ms=limit_ms,
        connect_attempts=attempts,
        request_timeout_ms=2 * limit_ms,
    )
    with pytest.raises(LogtwinError) as caught, connected(settings):
        pass
    return caught.value


def nowhere() -> str:
    return f"127.0.0.1:{deaf_port()}"


@pytest.mark.parametrize("host", ["nobody.invalid", "a" * 70])
def test_a_name_that_no_host_has_is_not_reached(host: str) -> None:
    assert isinstance(error_of(f"{host}:9092"), MasterUnreachable)


@pytest.mark.parametrize("security", [Security(), TLS])
def test_silent_ports_are_left_in_time_and_each_is_tried_as_often_as_is_asked_for(security: Security) -> None:
    with Door() as one, Door() as other:
        error = error_of(one.address, other.address, security=security, attempts=2, limit_ms=SHORT_MS)
        assert isinstance(error, MasterSilent)
        assert str(one.address) in str(error) or str(other.address) in str(error)
        assert (one.accepted, other.accepted) == (2, 2)


@pytest.mark.parametrize("hangs_up", [False, True])
def test_what_a_retry_cannot_help_is_said_at_once(hangs_up: bool) -> None:
    """And is heard, too, where the end of the connection comes with it."""
    with Door(b"HTTP/1.1 400 Bad Request\r\n\r\n", hangs_up=hangs_up) as web:
        assert isinstance(error_of(web.address, attempts=3), ProtocolViolation)
        assert web.accepted == 1


def test_a_port_that_speaks_no_tls_is_told_apart_from_one_that_is_down() -> None:
    with Door(b"220 smtp.example ESMTP\r\n") as mail:
        error = error_of(mail.address, security=TLS)
    assert isinstance(error, ConfigurationError)
    assert "no TLS" in str(error)


@pytest.mark.parametrize(
    "broken",
    [
        lambda file: Tls(ca_file=f"{file}.none"),
        lambda file: Tls(ca_file=__file__),
        lambda file: Tls(certificate_file=f"{file}.none"),
        lambda file: Tls(certificate_file=__file__),
        lambda file: Tls(certificate_file=str(file), key_file=__file__),
    ],
)
def test_a_file_of_tls_that_cannot_be_used_is_named(broken: Callable[[Path], Tls], key: Path) -> None:
    tls = broken(key)
    error = error_of(nowhere(), security=Security(protocol="SSL", tls=tls))
    assert isinstance(error, ConfigurationError)
    wrong: list[Any] = [file for file in (tls.ca_file, tls.certificate_file, tls.key_file) if file]
    assert wrong[-1] in str(error)


def test_secrets_are_read_when_a_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOBODY", raising=False)
    secret = Secret("env:NOBODY")
    security = Security(protocol="SASL_SSL", mechanism="PLAIN", username=secret, password=secret)
    error = error_of(nowhere(), security=security)
    assert isinstance(error, ConfigurationError)
    assert "env:NOBODY" in str(error)


def test_servers_at_which_nobody_listens_are_named_at_once_and_together() -> None:
    """No attempt follows the first: they are wrong, or nothing runs there."""
    one, other = nowhere(), nowhere()
    error = error_of(one, other, attempts=10_000)  # which would take hours
    assert type(error) is NobodyListens
    assert error.problem == f"no broker listens at {one} or at {other}"
    assert error.is_transient


def test_one_silent_server_is_somebody_who_listens() -> None:
    with Door() as silent:
        for servers in ((nowhere(), silent.address), (silent.address, nowhere())):  # kafka-python asks in any order
            assert type(error_of(*servers, limit_ms=SHORT_MS)) in (MasterSilent, MasterUnreachable)


def test_who_asks_a_topic_hears_at_once_that_nobody_listens() -> None:
    server = nowhere()
    topic = KafkaTopic(settings=KafkaSettings(servers=(server,)), cluster="c", topic="t", patience_ms=3_600_000)
    with pytest.raises(NobodyListens, match=server):
        topic.bounds()


ONE, OTHER = KafkaSettings(servers=("one.invalid:9092",)), KafkaSettings(servers=("other.invalid:9092",))


def test_who_has_answered_once_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then that nobody listens may be a restart, which is waited out."""

    monkeypatch.setattr(module, "Cluster", lambda *_: object())
    monkeypatch.setattr(module, "_answered", set())
    with pytest.raises(LookupError), kept(ONE):  # so that it is not kept
        raise LookupError
    assert (has_answered(ONE), has_answered(OTHER)) == (True, False)
