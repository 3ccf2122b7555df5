"""What an operator writes to read a topic of a cluster, and how mistakes are named; never a secret."""

import json
import pickle
import traceback
import uuid
from dataclasses import replace
from typing import Any

import pytest

from sources.access.security import Secret, Tls
from sources.errors import ConfigurationError
from sources.kafka.cluster.settings import Isolation, KafkaSettings, Security
from sources.kafka.options import ReplicatedTopicOptions, TopicOptions
from sources.kafka.topic import open_topic
from sources.kafka.topic_offsets import TopicOffsets
from sources.offsets import Offset
from sources.options import MasterOptions
from sources.registry import open_log

HIDDEN = "hunter2-ä"
PLAIN = {"id": "kafka/east/orders", "servers": "a:9092"}


def test_what_is_left_out_has_its_default() -> None:
    options = TopicOptions.of(PLAIN)
    assert (options.cluster, options.topic) == ("east", "orders")
    assert (options.starting_offset, options.ending_offset) == ("earliest", "latest")
    assert options.max_offsets_per_trigger == 1_000_000
    topic = open_topic(options)
    assert topic.isolation is Isolation.READ_COMMITTED
    assert topic.settings == KafkaSettings(servers=("a:9092",))


def test_every_option_arrives() -> None:
    options = TopicOptions.of(
        {
            "ID": "kafka/east/orders", "servers": "a:9092, b:9093", "isolation": "read_uncommitted",
            "startingOffset": "latest", "endingOffset": "latest", "maxOffsetsPerTrigger": "5", "splitoffsets": "6",
            "chunkBytes": "7", "connectTimeoutMs": "8", "requestTimeoutMs": "9", "securityProtocol": "SASL_SSL",
            "saslMechanism": "SCRAM-SHA-512", "saslUsername": "env:KAFKA_USER", "saslPassword": "file:/run/kafka",
            "sslCaFile": "ca.pem", "sslCertificateFile": "own.pem", "sslKeyFile": "key.pem",
            "sslKeyPassword": "env:KEY_PASSWORD", "sslCheckHostname": "false",
        }
    )  # fmt: skip
    tls = Tls(
        ca_file="ca.pem", certificate_file="own.pem", key_file="key.pem", key_password=Secret("env:KEY_PASSWORD"),
        check_hostname=False,
    )  # fmt: skip
    security = Security(
        protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username=Secret("env:KAFKA_USER"),
        password=Secret("file:/run/kafka"), tls=tls,
    )  # fmt: skip
    topic = open_topic(options)
    assert topic.settings == KafkaSettings(
        servers=("a:9092", "b:9093"), security=security, connect_timeout_ms=8, request_timeout_ms=9
    )
    assert (topic.isolation, topic.split_offsets, topic.chunk_bytes) == (Isolation.READ_UNCOMMITTED, 6, 7)
    assert (options.starting_offset, options.max_offsets_per_trigger) == ("latest", 5)
    assert pickle.loads(pickle.dumps((options, topic))) == (options, topic)  # noqa: S301 - our own


def test_a_start_is_a_name_or_what_a_checkpoint_says() -> None:
    at = TopicOffsets(uuid.UUID(int=7), {0: Offset(5), 3: Offset(0)})
    options = TopicOptions.of({**PLAIN, "startingOffset": json.dumps(at.to_json())})
    assert options.starting_positions == at
    for name in ("earliest", "latest"):
        assert TopicOptions.of({**PLAIN, "startingOffset": name}).starting_positions is None


def test_a_replicated_topic_has_a_group_unless_it_is_left_out() -> None:
    options = ReplicatedTopicOptions.of(PLAIN)
    assert (options.group, options.on_loss) == ("logtwin", "fail")
    assert open_topic(options).group == "logtwin"
    assert (
        open_topic(ReplicatedTopicOptions.of({**PLAIN, "group": "of my own", "on_loss": "record"})).group == "of my own"
    )
    assert open_topic(ReplicatedTopicOptions.of({**PLAIN, "group": ""})).group is None
    assert open_topic(TopicOptions.of(PLAIN)).group is None
    with pytest.raises(ConfigurationError, match="no key 'group'"):
        TopicOptions.of({**PLAIN, "group": "logtwin"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"id": "kafka/east"}, ["id", "kafka/<cluster>/<topic>"]),
        ({"id": "kafka/east/orders/0"}, ["kafka/<cluster>/<topic>", "all its partitions"]),
        ({"id": "rocketmq/east/orders"}, ["kafka/<cluster>/<topic>"]),
        ({"id": "kafka/east/"}, ["id is not usable", "kafka/<cluster>/<topic>", "'kafka/east/'"]),
        ({"emit": "ranges"}, ["no key 'emit'"]),
        ({"startingOffset": "5"}, ["starting_offset", "earliest, latest, or", "'5'"]),
        ({"startingOffset": "first"}, ["starting_offset", '"next"', "'first'"]),
        ({"startingOffset": '{"topic": "t", "next": {}}'}, ["starting_offset", "<partition>"]),
        ({"endingOffset": "earliest"}, ["ending_offset", "'latest'"]),
        ({"maxOffsetsPerTrigger": "0"}, ["max_offsets_per_trigger", "greater than 0"]),
        ({"isolation": "serializable"}, ["isolation", "read_committed", "serializable"]),
        ({"saslMechanism": "GSSAPI"}, ["sasl_mechanism", "SCRAM-SHA-256", "GSSAPI"]),
        ({"maxBytesPerTrigger": "5"}, ["'maxBytesPerTrigger'", "kafka/", "maxOffsetsPerTrigger"]),
    ],
)
def test_a_mistake_names_the_key_and_what_was_meant(given: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TopicOptions.of({**PLAIN, **given})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(({key: HIDDEN}, f"{key} is not the place of a secret") for key in ("saslUsername", "sslKeyPassword")),
        ({"saslPassword": f"ENV:{HIDDEN}"}, "saslPassword is not the place of a secret; expected env:NAME"),
        ({"id": ""}, "id"),
        ({"splitOffsets": "many"}, "split_offsets"),
        ({"saslPasword": HIDDEN}, "'saslPassword'"),
        ({"servers": None, "id": None}, "'id' is missing"),
    ],
)
def test_no_mistake_tells_a_secret(wrong: dict[str, str | None], said: str) -> None:
    """In what Spark shows: the error, and the errors it came from."""
    given = {key: value for key, value in ({**PLAIN, "saslPassword": f"file:{HIDDEN}"} | wrong).items() if value}
    with pytest.raises(ConfigurationError, match=said) as caught:
        TopicOptions.of(given)
    assert HIDDEN not in "".join(traceback.format_exception(caught.value))


def test_a_topic_among_the_logs_of_a_job_is_told_where_topics_stand() -> None:
    with pytest.raises(ConfigurationError, match="no single log") as caught:
        open_log(MasterOptions(id="kafka/east/orders/0"))
    assert "[[topics]]" in str(caught.value)


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
