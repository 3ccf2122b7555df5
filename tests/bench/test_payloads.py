"""bench.payloads: what the contestants get is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.payloads import fill_topic, write_log
from pipeline.demo.kafka_broker import VERSION
from sources.kafka.isolation import Isolation
from sources.offsets import Offset
from sources.rocketmq.format import commitlog, properties
from sources.rocketmq.format.commitlog import Message
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import COLUMNS, consumed

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

COUNT, TAKEN, PARTITIONS = 90, 70, 3
Held = dict[str, tuple[bytes, dict[str, str]]]
"""By key: body, and properties or headers."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(VERSION, tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log") / "log"
    write_log(folder, 128, COUNT)
    return folder


def messages(log: Path) -> Held:
    """Of a log of one file, record by record."""
    [file] = log.iterdir()
    data, at = file.read_bytes(), 0
    found: Held = {}
    for _ in range(COUNT):
        message = commitlog.decode(data, at, Offset(at))
        assert isinstance(message, Message)
        own = properties.decode(message.properties)
        found[own.pop("KEYS")] = message.body, own
        at += message.size
    return found


def records(broker: KafkaBroker, topic: str) -> Held:
    """Of a topic with TAKEN records, some in each partition."""
    found = [consumed(broker, topic, Isolation.READ_COMMITTED, partition) for partition in range(PARTITIONS)]
    assert all(found)
    assert sum(map(len, found)) == TAKEN
    held = [dict(zip(COLUMNS, row, strict=True)) for rows in found for row in rows]
    return {
        one["key"].decode(): (one["value"], {name: value.decode() for name, value in one["headers"]}) for one in held
    }


@pytest.mark.parametrize("has_properties", [False, True])
def test_a_topic_has_the_first_messages_of_the_log(broker: KafkaBroker, log: Path, has_properties: bool) -> None:
    topic = f"bodies-{has_properties}"
    fill_topic(broker.server, topic, log, PARTITIONS, count=TAKEN, has_properties=has_properties)
    first = sorted(messages(log).items())[:TAKEN]
    small = {"channel": "web"}
    expected = {key: (body, own if has_properties else small) for key, (body, own) in first}
    assert len(expected) == TAKEN
    assert all(len(own) == 7 for _, (_, own) in first)
    assert records(broker, topic) == expected
