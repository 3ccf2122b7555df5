"""How an operator says what a cluster is, and where its secrets are found."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from sources.access.secrets import Secret
from sources.access.tls import Tls
from sources.errors import ConfigurationError
from sources.kafka.cluster.settings import KafkaSettings, Security

HIDDEN = "hunter2-ä"
USER, PASSWORD = Secret("env:KAFKA_USER"), Secret("file:/run/secrets/kafka")
SCRAM = Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username=USER, password=PASSWORD)


def test_settings_travel_and_show_where_secrets_are_and_never_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_USER", HIDDEN)
    settings = KafkaSettings(servers=("a:1", "[::1]:2"), security=SCRAM)
    USER.reveal()
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes
    assert HIDDEN.encode() not in pickle.dumps(settings)
    assert HIDDEN not in repr(settings)
    assert "env:KAFKA_USER" in repr(settings)
    assert str(PASSWORD) == "file:/run/secrets/kafka"
    assert str(settings) == "a:1,[::1]:2"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": "TLS"}, "there is no protocol of this name; expected PLAINTEXT or SSL or .*, found 'TLS'"),
        ({"mechanism": "GSSAPI"}, "there is no mechanism of this name; expected PLAIN or .*, found 'GSSAPI'"),
        ({"mechanism": None}, "SASL_SSL needs a mechanism"),
        ({"username": None}, "SASL_SSL needs a username"),
        ({"password": None}, "SASL_SSL needs a password"),
        ({"protocol": "SSL"}, "mechanism has no effect with security protocol SSL"),
        ({"protocol": "SASL_PLAINTEXT", "tls": {"ca_file": "ca.pem"}}, "ca_file has no effect"),
        ({"protocol": "SASL_PLAINTEXT", "tls": {"certificate_file": "us.pem"}}, "certificate_file has no effect"),
        ({"protocol": "SASL_PLAINTEXT", "tls": {"check_hostname": False}}, "check_hostname = false has no effect"),
        ({"tls": {"key_file": "key.pem"}}, "key_file of TLS has no effect. Remove it, or give the certificate_file"),
        (
            {"tls": {"key_password": PASSWORD}},
            "key_password of TLS has no effect. Remove it, or give the certificate_file",
        ),
    ],
)
def test_what_is_missing_or_would_have_no_effect_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        replace(SCRAM, **changes | ({"tls": Tls(**changes["tls"])} if "tls" in changes else {}))


def test_servers_are_host_and_port_and_there_is_one() -> None:
    with pytest.raises(ConfigurationError, match="expected host:port"):
        KafkaSettings(servers=("a:1", "a"))
    with pytest.raises(ConfigurationError, match="no server"):
        KafkaSettings(servers=())
