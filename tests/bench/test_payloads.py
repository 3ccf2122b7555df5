"""bench.payloads: what the contestants get is the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from bench.payloads import delete_topic, fill_topic, write_log
from pipeline.kafka_broker import running_broker
from sources.offsets import Offset
from sources.rocketmq import commitlog, properties
from sources.rocketmq.commitlog import Message

COUNT, TAKEN, PARTITIONS = 90, 70, 3
Held = dict[str, tuple[bytes, dict[str, str]]]
"""By key: body, and properties or headers."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as server:
        yield server


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


def records(server: str, topic: str) -> Held:
    given = {"auto_offset_reset": "earliest", "group_id": None, "consumer_timeout_ms": 20_000}
    with closing(KafkaConsumer(topic, bootstrap_servers=server, **given)) as consumer:
        found = [record for _, record in zip(range(TAKEN), consumer, strict=False)]
        assert not any(consumer.poll(500).values())
    assert {record.partition for record in found} == set(range(PARTITIONS))
    texts = [(record, {name: value.decode() for name, value in record.headers}) for record in found]
    return {record.key.decode(): (record.value, headers) for record, headers in texts}


@pytest.mark.peer
@pytest.mark.parametrize("has_properties", [False, True])
def test_a_topic_has_the_first_messages_of_the_log(server: str, log: Path, has_properties: bool) -> None:
    topic = f"bodies-{has_properties}"
    fill_topic(server, topic, log, PARTITIONS, count=TAKEN, has_properties=has_properties)
    first = sorted(messages(log).items())[:TAKEN]
    small = {"channel": "web"}
    expected = {key: (body, own if has_properties else small) for key, (body, own) in first}
    assert len(expected) == TAKEN
    assert all(len(own) == 7 for _, (_, own) in first)
    assert records(server, topic) == expected


@pytest.mark.peer
def test_a_topic_that_was_deleted_is_not_there(server: str, log: Path) -> None:
    fill_topic(server, "gone", log, PARTITIONS)
    delete_topic(server, "gone")
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        assert "gone" not in admin.list_topics()
