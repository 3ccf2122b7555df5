"""What kafka-python's errors become: whose fault, whether a retry can help, and nothing of what is secret."""

from __future__ import annotations

import ssl

import kafka.errors as kafka_errors
import pytest

from sources.access.secrets import Secret
from sources.errors import (
    ConfigurationError,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
)
from sources.kafka.cluster.client_errors import meaning
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
