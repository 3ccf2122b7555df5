"""How topics stand in a configuration, and which they are."""

import tomllib
import traceback
from typing import Any

import pytest

from pipeline.config.patterns import Topics, parsed_topics
from pipeline.inspect.selection import ConfiguredLog
from sources.discovery import rostered
from sources.errors import ConfigurationError
from sources.kafka import discovery
from sources.offsets import LogId
from tests.log_lines import said_by
from tests.sources.kafka.scripted_cluster import ScriptedCluster, metadata, topic

SERVERS = {"servers": "b:1"}
ONE = {"id": "kafka/east/orders", **SERVERS}
TWO = {"cluster": "east", "topics": ["orders", "payments"], **SERVERS}
MATCHING = {"cluster": "east", "pattern": "orders-.*", **SERVERS}
EXISTING = ["orders", "orders-eu", "orders-us", "old-orders-us"]


def table(given: dict[str, Any]) -> Topics:
    return parsed_topics(given, where="job.toml [[topics]]")


def test_brokers_are_asked_which_topics_match(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ScriptedCluster(*[metadata(*map(topic, EXISTING))] * 3)
    monkeypatch.setattr("sources.kafka.cluster.connection.connected", cluster.connected)
    roster = rostered([table({**ONE, "group": "one"}), table({**MATCHING, "group": "all"})])
    assert {str(log_id): (one.id, one.group) for log_id, one in roster.options.items()} == {
        "kafka/east/orders": ("kafka/east/orders", "one"),
        "kafka/east/orders-eu": ("kafka/east/orders-eu", "all"),
        "kafka/east/orders-us": ("kafka/east/orders-us", "all"),
    }
    assert list(map(str, table({**MATCHING, "exclude": [".*-us"]}).find())) == ["kafka/east/orders-eu"]
    assert said_by(discovery.__name__, caplog) == []
    assert table(MATCHING | {"pattern": "order"}).find() == {}
    assert said_by(discovery.__name__, caplog) == ["cluster east has no topic that matches 'order'"]


def test_a_partition_is_read_from_its_brokers_alone() -> None:
    (topic,) = table(ONE).find().values()
    partition = ConfiguredLog(topic, LogId.parse("kafka/east/orders/3"))
    with pytest.raises(ConfigurationError, match=r"kafka/east/orders/3: .* expected no path, found /files"):
        partition.by_path("/files")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (SERVERS, ["which topics", "none of these keys"]),
        ({"cluster": "east", **SERVERS}, ["which topics", "cluster = 'east'"]),
        ({**ONE, "topics": ["a"]}, ["which topics", "topics = ['a']"]),
        ({**TWO, "pattern": "x"}, ["which topics", "pattern = 'x'"]),
        ({**TWO, "topics": []}, ["which topics"]),
        ({**TWO, "topics": ["a/0"]}, ["names no topic", "kafka/east/a/0"]),
        ({**ONE, "id": "orders"}, ["names no topic", "orders"]),
        ({**ONE, "id": "kafka/east/orders/0"}, ["names no topic", "kafka/east/orders/0"]),
        ({**ONE, "id": "rocketmq/a"}, ["names no topic", "rocketmq/a"]),
        ({**MATCHING, "pattern": "orders-("}, ["pattern", "regular expression", "orders-("]),
        ({**MATCHING, "exclude": ["("]}, ["exclude", "regular expression"]),
        ({**MATCHING, "exclude": "x"}, ["exclude", "a list", "'x'"]),
        ({**TWO, "exclude": ["x"]}, ["which topics", "exclude = ['x']"]),
        ({"id": "kafka/east/orders"}, ["'servers' is missing"]),
        ({**ONE, "servers": "b"}, ["host:port"]),
        ({**ONE, "emit": "records"}, ["no key 'emit'"]),
        ({**ONE, "ending_offset": "latest"}, ["ending_offset cannot be given", "--available-now"]),
        ({**ONE, "starting_offset": '{"topic": "x", "next": {}}'}, ["starting_offset", "earliest or latest"]),
        ({**ONE, "starting_offset": 5}, ["starting_offset", "earliest or latest"]),
        ({**ONE, "on_los": "fail"}, ["'on_los'", "'on_loss'"]),
        ({**ONE, "patern": "x"}, ["'patern'", "'pattern'"]),
        ({**ONE, "split_offsets": 0}, ["split_offsets", "greater than 0"]),
        ({**ONE, "security_protocol": "SASL_SSL"}, ["SASL_SSL", "mechanism"]),
        ({**MATCHING, "security_protocol": "SASL_SSL"}, ["SASL_SSL", "mechanism"]),
    ],
)
def test_mistakes_are_named(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        table(given)
    for word in (*words, "job.toml [[topics]]"):
        assert word in str(caught.value)


@pytest.mark.parametrize("wrong", [{}, {"split_offsets": 0}, {"ssl_check": True}, {"cluster": "x"}, {"servers": 5}])
def test_a_secret_that_was_written_down_is_not_repeated(wrong: dict[str, Any]) -> None:
    """Where it is no place of one, and where something else is wrong beside it."""
    text = 'id = "kafka/east/orders"\nservers = "b:1"\nsasl_password = "hunter2"\n'
    with pytest.raises(ConfigurationError) as caught:
        table({**tomllib.loads(text), **wrong})
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
