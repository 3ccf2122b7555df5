"""Connections to real Kafka brokers, protected in every way, refused for every reason; and no secret is ever told."""

import os
import pickle
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import psutil
import pytest
from kafka.protocol.metadata import MetadataRequest

from sources.access.security import Secret, Tls
from sources.errors import (
    ConfigurationError,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
)
from sources.kafka.cluster.connection import Cluster, connected
from sources.kafka.cluster.settings import KafkaSettings, Mechanism, Security
from tests.patience import wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_security import SecureListeners

pytestmark = pytest.mark.peer

E = TypeVar("E", bound=LogtwinError)

MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD, KEY_PASSWORD = Secret("env:TEST_USER"), Secret("env:TEST_PASSWORD"), Secret("env:TEST_KEY_PASSWORD")


@pytest.fixture(autouse=True)
def no_secret_in_the_log(
    kafka_keys: SecureListeners, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Whatever a test does, and however much is logged."""
    monkeypatch.setenv("TEST_USER", kafka_keys.user)
    monkeypatch.setenv("TEST_PASSWORD", kafka_keys.password)
    monkeypatch.setenv("TEST_KEY_PASSWORD", kafka_keys.key_password)
    caplog.set_level(1)
    caplog.set_level(1, "kafka")  # which the command line silences for its process
    yield
    said = [f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.get_records("call")]
    assert any("kafka" in record.name for record in caplog.get_records("call"))  # else there is nothing to find
    assert not [line for line in said if reveals(line, kafka_keys)]


def reveals(text: str, keys: SecureListeners) -> bool:
    return any(secret in text for secret in (keys.user, keys.password, keys.key_password))


def sasl(keys: SecureListeners, mechanism: Mechanism = "PLAIN", **changes: Any) -> Security:
    trusted = Tls(**{"ca_file": str(keys.ca_file), **changes})
    return Security(protocol="SASL_SSL", mechanism=mechanism, username=USER, password=PASSWORD, tls=trusted)


def tls(keys: SecureListeners, **changes: Any) -> Security:
    files = {"certificate_file": str(keys.certificate_file), "key_file": str(keys.key_file)}
    own: dict[str, Any] = {**files, "key_password": KEY_PASSWORD, **changes}
    return Security(protocol="SSL", tls=Tls(**{"ca_file": str(keys.ca_file), **own}))


def to(server: str, security: Security = Security()) -> KafkaSettings:  # noqa: B008 - frozen
    return KafkaSettings(
        servers=(server,), security=security, connect_timeout_ms=10_000, connect_attempts=1, request_timeout_ms=2000
    )


def brokers(cluster: Cluster, node_id: int | None = None) -> list[str]:
    answer = cluster.call(MetadataRequest(topics=MetadataRequest.NO_TOPICS), node_id)
    return [f"{one.host}:{one.port}" for one in answer.brokers]


@contextmanager
def refused(kind: type[E], keys: SecureListeners) -> Iterator[pytest.ExceptionInfo[E]]:
    """What is raised inside is of `kind`, and tells nothing, neither here nor where it travels to."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    told = "".join(traceback.format_exception(error)), repr(error), repr(error.facts()), repr(pickle.dumps(error))
    assert not [text for text in told if reveals(text, keys)]


def test_a_broker_is_asked_as_any_and_as_itself(each_kafka: KafkaBroker) -> None:
    with connected(to(each_kafka.server)) as cluster:
        assert cluster.cluster_id == each_kafka.cluster_id
        assert brokers(cluster) == [each_kafka.server]
        assert brokers(cluster, each_kafka.node_id) == [each_kafka.server]
        with pytest.raises(MasterRefused, match="no broker 7"):
            cluster.call(MetadataRequest(topics=MetadataRequest.NO_TOPICS), 7)
        assert brokers(cluster) == [each_kafka.server]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_is_known_by_each_mechanism(
    each_kafka: KafkaBroker, kafka_keys: SecureListeners, mechanism: Mechanism
) -> None:
    with connected(to(each_kafka.sasl_server, sasl(kafka_keys, mechanism))) as cluster:
        assert cluster.cluster_id == each_kafka.cluster_id
        assert brokers(cluster, each_kafka.node_id) == [each_kafka.sasl_server]
        assert not reveals(repr(cluster), kafka_keys)
        with pytest.raises(TypeError):
            pickle.dumps(cluster)


@pytest.mark.parametrize(
    ("mechanism", "wrong"), [("PLAIN", "TEST_USER"), ("SCRAM-SHA-256", "TEST_PASSWORD"), ("SCRAM-SHA-512", "TEST_USER")]
)
def test_a_user_who_is_not_known_is_told_where_the_names_came_from(
    each_kafka: KafkaBroker,
    kafka_keys: SecureListeners,
    mechanism: Mechanism,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(wrong, "somebody-else")
    with (
        refused(ConfigurationError, kafka_keys) as caught,
        connected(replace(to(each_kafka.sasl_server, sasl(kafka_keys, mechanism)), connect_attempts=3)),
    ):
        pass
    assert caught.value.found == f"{mechanism} as the user in {USER}, with the password in {PASSWORD}"
    assert each_kafka.sasl_server in str(caught.value)


def test_a_client_is_known_by_its_certificate(each_kafka: KafkaBroker, kafka_keys: SecureListeners) -> None:
    with connected(to(each_kafka.tls_server, tls(kafka_keys))) as cluster:
        assert brokers(cluster, each_kafka.node_id) == [each_kafka.tls_server]


def test_what_does_not_fit_the_listener_is_named(each_kafka: KafkaBroker, kafka_keys: SecureListeners) -> None:
    one, keys, key_file = each_kafka, kafka_keys, str(kafka_keys.key_file)
    unprotected = Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username=USER, password=PASSWORD)
    by_address = one.sasl_server.replace("localhost", "127.0.0.1")
    unfit: list[tuple[type[LogtwinError], str, Security, list[str]]] = [
        (ConfigurationError, one.tls_server, Security(protocol="SSL", tls=sasl(keys).tls), ["certificate_file"]),
        (ConfigurationError, one.tls_server, tls(keys, key_password=None), [key_file]),  # nobody is asked for it
        (ConfigurationError, one.tls_server, tls(keys, key_password=PASSWORD), [key_file]),
        (ConfigurationError, one.sasl_server, sasl(keys, ca_file=None), ["not trusted", "ca_file"]),  # the system's
        (ConfigurationError, one.sasl_server, sasl(keys, ca_file=str(keys.other_ca_file)), ["not trusted", "ca_file"]),
        (ConfigurationError, by_address, sasl(keys), ["not valid for '127.0.0.1'"]),
        (ConfigurationError, one.server, unprotected, ["protocol of its listener"]),
        (MasterUnreachable, one.server, tls(keys), ["protocol of this listener SSL"]),
        (ProtocolViolation, one.sasl_server, Security(), ["protocol of this listener PLAINTEXT"]),
    ]
    for kind, server, security, said in unfit:
        with refused(kind, keys) as caught, connected(to(server, security)):
            pass
        assert [words for words in said if words not in str(caught.value)] == []
    with connected(to(by_address, sasl(keys, check_hostname=False))) as cluster:
        assert cluster.cluster_id == one.cluster_id


def test_a_broker_that_falls_silent_is_given_up_in_time(each_kafka: KafkaBroker, kafka_keys: SecureListeners) -> None:
    with connected(to(each_kafka.sasl_server, sasl(kafka_keys))) as cluster:
        os.kill(each_kafka.pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(each_kafka.pid).status() == psutil.STATUS_STOPPED, "the broker's stop")
        try:
            with refused(MasterSilent, kafka_keys):
                brokers(cluster)
        finally:
            os.kill(each_kafka.pid, signal.SIGCONT)
        assert brokers(cluster) == [each_kafka.sasl_server]
