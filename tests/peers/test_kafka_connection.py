"""Connections to real Kafka brokers, protected in every way, refused for every reason; and no secret is ever told."""

from __future__ import annotations

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

from sources.access.secrets import Secret
from sources.access.tls import Tls
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


@pytest.fixture(scope="module")
def keys(kafka_keys: SecureListeners) -> SecureListeners:
    return kafka_keys


@pytest.fixture(scope="module")
def broker(each_kafka: KafkaBroker) -> KafkaBroker:
    return each_kafka


@pytest.fixture(autouse=True)
def no_secret_in_the_log(
    keys: SecureListeners, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Whatever a test does, and however much is logged."""
    monkeypatch.setenv("TEST_USER", keys.user)
    monkeypatch.setenv("TEST_PASSWORD", keys.password)
    monkeypatch.setenv("TEST_KEY_PASSWORD", keys.key_password)
    caplog.set_level(1)
    caplog.set_level(1, "kafka")  # which the command line silences for its process
    yield
    said = [f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.get_records("call")]
    assert any("kafka" in record.name for record in caplog.get_records("call"))  # else there is nothing to find
    assert not [line for line in said if reveals(line, keys)]


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


def test_a_broker_is_asked_as_any_and_as_itself(broker: KafkaBroker) -> None:
    with connected(to(broker.server)) as cluster:
        assert cluster.cluster_id == broker.cluster_id
        assert brokers(cluster) == [broker.server]
        assert brokers(cluster, broker.node_id) == [broker.server]
        with pytest.raises(MasterRefused, match="no broker 7"):
            cluster.call(MetadataRequest(topics=MetadataRequest.NO_TOPICS), 7)
        assert brokers(cluster) == [broker.server]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_is_known_by_each_mechanism(broker: KafkaBroker, keys: SecureListeners, mechanism: Mechanism) -> None:
    with connected(to(broker.sasl_server, sasl(keys, mechanism))) as cluster:
        assert cluster.cluster_id == broker.cluster_id
        assert brokers(cluster, broker.node_id) == [broker.sasl_server]
        assert not reveals(repr(cluster), keys)
        with pytest.raises(TypeError):
            pickle.dumps(cluster)


@pytest.mark.parametrize(
    ("mechanism", "wrong"), [("PLAIN", "TEST_USER"), ("SCRAM-SHA-256", "TEST_PASSWORD"), ("SCRAM-SHA-512", "TEST_USER")]
)
def test_a_user_who_is_not_known_is_told_where_the_names_came_from(
    broker: KafkaBroker, keys: SecureListeners, mechanism: Mechanism, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(wrong, "somebody-else")
    with (
        refused(ConfigurationError, keys) as caught,
        connected(replace(to(broker.sasl_server, sasl(keys, mechanism)), connect_attempts=3)),
    ):
        pass
    assert caught.value.found == f"{mechanism} as the user in {USER}, with the password in {PASSWORD}"
    assert broker.sasl_server in str(caught.value)


def test_a_client_is_known_by_its_certificate(broker: KafkaBroker, keys: SecureListeners) -> None:
    with connected(to(broker.tls_server, tls(keys))) as cluster:
        assert brokers(cluster, broker.node_id) == [broker.tls_server]
    without = Security(protocol="SSL", tls=Tls(ca_file=str(keys.ca_file)))
    with refused(ConfigurationError, keys) as caught, connected(to(broker.tls_server, without)):
        pass
    assert "certificate_file" in str(caught.value)
    for password in (None, PASSWORD):  # nobody is asked for it
        settings = to(broker.tls_server, tls(keys, key_password=password))
        with refused(ConfigurationError, keys) as caught, connected(settings):
            pass
        assert str(keys.key_file) in str(caught.value)


def test_a_broker_whose_certificate_is_not_trusted_is_refused(broker: KafkaBroker, keys: SecureListeners) -> None:
    for ca_file in (None, str(keys.other_ca_file)):  # the system's, another
        with (
            refused(ConfigurationError, keys) as caught,
            connected(to(broker.sasl_server, sasl(keys, ca_file=ca_file))),
        ):
            pass
        assert "not trusted" in caught.value.problem
        assert "ca_file" in str(caught.value)


def test_a_broker_that_is_not_the_one_in_its_certificate_is_refused(broker: KafkaBroker, keys: SecureListeners) -> None:
    by_address = broker.sasl_server.replace("localhost", "127.0.0.1")
    with refused(ConfigurationError, keys) as caught, connected(to(by_address, sasl(keys))):
        pass
    assert "not valid for '127.0.0.1'" in str(caught.value)
    with connected(to(by_address, sasl(keys, check_hostname=False))) as cluster:
        assert cluster.cluster_id == broker.cluster_id


def test_another_protocol_than_the_listeners_is_named(broker: KafkaBroker, keys: SecureListeners) -> None:
    unprotected = Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username=USER, password=PASSWORD)
    with refused(ConfigurationError, keys) as without_sasl, connected(to(broker.server, unprotected)):
        pass
    assert "protocol of its listener" in str(without_sasl.value)
    with refused(MasterUnreachable, keys) as without_tls, connected(to(broker.server, tls(keys))):
        pass
    assert "protocol of this listener SSL" in str(without_tls.value)
    with refused(ProtocolViolation, keys) as with_tls, connected(to(broker.sasl_server)):
        pass
    assert "protocol of this listener PLAINTEXT" in str(with_tls.value)


def test_a_broker_that_falls_silent_is_given_up_in_time(broker: KafkaBroker, keys: SecureListeners) -> None:
    with connected(to(broker.sasl_server, sasl(keys))) as cluster:
        os.kill(broker.pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(broker.pid).status() == psutil.STATUS_STOPPED, "the broker's stop")
        try:
            with refused(MasterSilent, keys):
                brokers(cluster)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert brokers(cluster) == [broker.sasl_server]
