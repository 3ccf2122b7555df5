"""What kafka-python's errors become: whose fault, whether a retry can help, and nothing of what is secret."""

import ssl

import kafka.errors as kafka_errors
import pytest

from sources.access.security import Secret
from sources.errors import (
    BelowMinimum,
    ConfigurationError,
    CorruptRecord,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
    Recreated,
)
from sources.kafka.cluster.client_errors import check_code, meaning, refusal
from sources.kafka.cluster.connection import ask_again
from sources.kafka.cluster.settings import Security

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
