"""Connecting to what is no broker, or none that answers: which error it is, and that every wait has a limit."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka.errors as kafka_errors
import pytest
import trustme

from sources.access.security import Secret, Tls
from sources.errors import (
    BelowMinimum,
    ConfigurationError,
    CorruptRecord,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    NobodyListens,
    ProtocolViolation,
    Recreated,
)
from sources.kafka.cluster import connection as module
from sources.kafka.cluster.client_errors import check_code, meaning, refusal
from sources.kafka.cluster.connection import ask_again, connected, has_answered, kept
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


# what kafka-python's errors become: whose fault, whether a retry can help, and nothing of what is secret


SERVER = "broker-a:9093"
PLAINTEXT = Security()
SCRAM = Security(
    protocol="SASL_SSL", mechanism="SCRAM-SHA-256", username=Secret("env:USER_1"), password=Secret("file:/run/1")
)


def in_handshake(error: ssl.SSLError) -> Exception:
    """As kafka-python wraps it."""
    wrapped: Exception = kafka_errors.KafkaConnectionError(f"Handshake failed: {error}")
    wrapped.__context__ = error
    return wrapped


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (kafka_errors.KafkaConnectionError("socket disconnected"), MasterUnreachable),
        (kafka_errors.NodeNotReadyError(), MasterUnreachable),
        (ConnectionResetError("reset"), MasterUnreachable),
        (UnicodeError("label too long"), MasterUnreachable),
        (in_handshake(ssl.SSLEOFError(8, "EOF occurred in violation of protocol")), MasterUnreachable),
        (kafka_errors.KafkaTimeoutError(), MasterSilent),
        (kafka_errors.RequestTimedOutError("after 20 ms"), MasterSilent),
        (kafka_errors.NotLeaderForPartitionError(), MasterRefused),
        (kafka_errors.CoordinatorLoadInProgressError(), MasterRefused),
        (kafka_errors.InvalidReceiveError("Invalid frame length: -1"), ProtocolViolation),
        (kafka_errors.CorrelationIdError("4 != 5"), ProtocolViolation),
        (kafka_errors.IncompatibleBrokerVersion("no Fetch v13"), ConfigurationError),
        (kafka_errors.UnsupportedVersionError(), ConfigurationError),
        (kafka_errors.TopicAuthorizationFailedError(), ConfigurationError),
        (in_handshake(ssl.SSLError(1, "wrong version number")), ConfigurationError),
        (kafka_errors.KafkaConnectionError(ssl.SSLError(1, "certificate required")), ConfigurationError),
    ],
)
def test_each_error_is_one_of_ours_that_names_the_broker(error: Exception, kind: type[LogtwinError]) -> None:
    for security in (PLAINTEXT, SCRAM):
        ours = meaning(error, SERVER, security)
        assert type(ours) is kind
        assert SERVER in str(ours)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (kafka_errors.SaslAuthenticationFailedError("user hunter2 is not known"), "does not accept us"),
        (kafka_errors.UnsupportedSaslMechanismError("hunter2"), "does not support this way"),
        (kafka_errors.IllegalSaslStateError("hunter2"), "does not support this way"),
        (ValueError("hunter2: Server sent wrong signature!"), "does not prove that it knows our password"),
    ],
)
def test_what_is_said_of_credentials_is_made_of_the_settings(error: Exception, said: str) -> None:
    ours = meaning(error, SERVER, SCRAM)
    assert type(ours) is ConfigurationError
    assert said in ours.problem
    assert "SCRAM-SHA-256" in str(ours)
    assert "hunter2" not in str(ours)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (-1, MasterRefused),  # UNKNOWN_SERVER_ERROR
        (2, CorruptRecord),  # CORRUPT_MESSAGE
        (3, MasterRefused),  # UNKNOWN_TOPIC_OR_PARTITION: the broker may not have heard of it yet
        (6, MasterRefused),  # NOT_LEADER_OR_FOLLOWER
        (14, MasterRefused),  # COORDINATOR_LOAD_IN_PROGRESS
        (16, MasterRefused),  # NOT_COORDINATOR
        (29, ConfigurationError),  # TOPIC_AUTHORIZATION_FAILED
        (30, ConfigurationError),  # GROUP_AUTHORIZATION_FAILED
        (31, ConfigurationError),  # CLUSTER_AUTHORIZATION_FAILED
        (35, ProtocolViolation),  # UNSUPPORTED_VERSION
        (42, ProtocolViolation),  # INVALID_REQUEST
        (56, MasterRefused),  # KAFKA_STORAGE_ERROR
        (74, MasterRefused),  # FENCED_LEADER_EPOCH
        (75, MasterRefused),  # UNKNOWN_LEADER_EPOCH
        (78, MasterRefused),  # OFFSET_NOT_AVAILABLE
        (100, MasterRefused),  # UNKNOWN_TOPIC_ID
        (9999, ProtocolViolation),  # none that we know: nobody can say that it passes
    ],
)
def test_a_code_says_whose_fault_it_is(code: int, expected: type[LogtwinError]) -> None:
    error = refusal(code, "where topic t lies", offset=5)
    assert type(error) is expected
    assert error.offset == 5
    assert f"(error {code})" in str(error)
    with pytest.raises(expected):
        check_code(code, "where topic t lies")


# what is asked again, how long, and what is not


MINUTE_MS = 60_000


class Failing:
    """Answers after `times` errors of a kind."""

    def __init__(self, error: type[Exception], times: int) -> None:
        self._error = error
        self._times = times
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self._times:
            raise self._error(f"failure {self.asked}")
        return "answer"


@pytest.mark.parametrize("error", [MasterUnreachable, MasterSilent, MasterRefused])
def test_what_may_pass_is_asked_again(error: type[LogtwinError]) -> None:
    failing = Failing(error, 2)
    assert (ask_again(failing, patience_ms=MINUTE_MS), failing.asked) == ("answer", 3)


@pytest.mark.parametrize("error", [BelowMinimum, Recreated, ConfigurationError, ValueError])
def test_what_does_not_pass_is_raised_at_once(error: type[Exception]) -> None:
    failing = Failing(error, 1)
    with pytest.raises(error, match="failure 1"):
        ask_again(failing, patience_ms=MINUTE_MS)
    assert failing.asked == 1


def test_patience_ends_with_the_last_error() -> None:
    failing = Failing(MasterRefused, 1000)
    with pytest.raises(MasterRefused, match="failure") as raised:
        ask_again(failing, patience_ms=300)
    assert failing.asked > 1
    assert raised.value.problem == f"failure {failing.asked}"
