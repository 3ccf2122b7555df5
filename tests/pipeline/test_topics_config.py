"""How topics stand in a configuration, and which they are."""

from __future__ import annotations

import tomllib
import traceback
from typing import Any

import pytest

from pipeline.config import topics
from pipeline.config.topics import TopicsConfig, existing_topics, expanded
from sources.errors import ConfigurationError
from tests.log_lines import said_by
from tests.sources.kafka.scripted_cluster import ScriptedCluster, metadata, topic

SERVERS = {"servers": "b:1"}
ONE = {"id": "kafka/east/orders", **SERVERS}
TWO = {"cluster": "east", "topics": ["orders", "payments"], **SERVERS}
MATCHING = {"cluster": "east", "pattern": "orders-.*", **SERVERS}
EXISTING = ["orders", "orders-eu", "orders-us", "old-orders-us"]


def table(given: dict[str, Any]) -> TopicsConfig:
    return TopicsConfig.parse(given, where="job.toml [[topics]]")


def ids(*tables: dict[str, Any]) -> list[str]:
    return [options.id for options in expanded(map(table, tables), lambda _: EXISTING)]


def test_only_a_pattern_asks_which_topics_there_are() -> None:
    asked: list[str] = []

    def existing(one: TopicsConfig) -> list[str]:
        asked.append(str(one.pattern))
        return []

    assert len(expanded(map(table, (ONE, MATCHING)), existing)) == 1
    assert asked == ["orders-.*"]


def test_brokers_are_asked_which_topics_match(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ScriptedCluster(*[metadata(*map(topic, EXISTING))] * 2)
    monkeypatch.setattr("sources.kafka.cluster.connection.connected", cluster.connected)
    assert existing_topics(table(MATCHING)) == ["orders-eu", "orders-us"]
    assert said_by(topics.__name__, caplog) == []
    assert existing_topics(table(MATCHING | {"pattern": "order"})) == []
    assert said_by(topics.__name__, caplog) == ["cluster east has no topic that matches 'order'"]


@pytest.mark.parametrize("others", [MATCHING | {"pattern": "orders"}, TWO])
def test_a_topic_is_in_one_table(others: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="in two") as caught:
        ids(ONE, others)
    assert "kafka/east/orders" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "log_id"), [(ONE, "kafka/east/orders"), (TWO, "kafka/east/payments"), (MATCHING, "kafka/east/orders-eu")]
)
def test_one_topic_of_a_table_can_be_chosen(given: dict[str, Any], log_id: str) -> None:
    chosen = table({**given, "group": "lake"}).only(log_id)
    assert chosen is not None
    assert [(one.id, one.group) for one in chosen.among(EXISTING)] == [(log_id, "lake")]


@pytest.mark.parametrize("other", ["kafka/west/orders-eu", "kafka/east/payment", "rocketmq/orders-eu", "orders-eu", ""])
def test_no_other_topic_can_be_chosen(other: str) -> None:
    assert [table(given).only(other) for given in (ONE, TWO, MATCHING)] == [None, None, None]


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
        ({"id": "kafka/east/orders"}, ["'servers' is missing"]),
        ({**ONE, "servers": "b"}, ["host:port"]),
        ({**ONE, "emit": "records"}, ["no key 'emit'"]),
        ({**ONE, "endingOffset": "latest"}, ["ending_offset cannot be given", "--available-now"]),
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
