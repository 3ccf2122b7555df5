"""Queues as the brokers built them, entry for entry; and what their files cannot show here."""

import json

import pytest

from sinks.tables import LOG, metadata_table
from sources.metadata import TOPICS
from sources.rocketmq.metadata import items_of
from tests.sinks.views.lake import Asked, Row, version
from tests.sinks.views.made_logs import NOON, message
from tests.sinks.views.stored_logs import time
from tests.truth import Fixture

pytestmark = pytest.mark.spark

QUEUES = "rocketmq/queues"
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "7,0"}
BATCH = {"INNER_BASE": "40", "INNER_NUM": "3"}
CONFIG = {"told": {"attributes": {"queue.type": "BatchCQ"}}, "plain": {"attributes": {}}}


def put(offset: int, topic: str, **fields: object) -> Row:
    return message(offset, topic, log_id=QUEUES, **fields)


MADE_ROWS = {
    LOG: [
        put(0, "chat", queue_id=3, queue_offset=5, tags_code=9, properties=LIGHT),
        put(100, "%RETRY%chat", properties=LIGHT),
        put(200, "SCHEDULE_TOPIC_XXXX", properties=LIGHT),
        put(300, "rmq_sys_wheel_timer", properties=LIGHT),
        put(400, "chat", queue_offset=6, properties=LIGHT | {"INNER_MULTI_QUEUE_OFFSET": "8"}),
        put(500, "chat", queue_offset=7, properties=LIGHT | {"INNER_MULTI_QUEUE_OFFSET": "8,x"}),
        put(600, "chat", queue_offset=8, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}),
        put(700, "chat", queue_offset=9, sys_flag=4, properties=LIGHT),
        put(1000, "told", queue_offset=4),
        put(1100, "seen", queue_offset=40, sys_flag=192, properties=BATCH),
        put(1200, "seen", queue_offset=0),
        put(1300, "seen", queue_offset=43, sys_flag=192, properties=BATCH | {"INNER_NUM": "many"}),
        put(1400, "plain", queue_offset=0, sys_flag=192),
    ],
    metadata_table(TOPICS): [
        version(QUEUES, NOON, item)
        for item in items_of(TOPICS, json.dumps({"topicConfigTable": CONFIG}).encode()).to_pylist()
    ],
}
"""Light queues below offset 1000, topics of several types above."""


def entries(asked: Asked, log_id: str, *columns: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row[name] for name in columns) for row in asked.rows("consume_queue", log_id))


def test_it_equals_the_files_of_the_broker(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    written = [
        (queue["topic"], queue["queue_id"], number, *entry)
        for queue in fixture_log.consume_queues
        for number, entry in enumerate(queue["entries"], queue["first_index"])
    ]
    assert len(written) > 3000
    columns = ("topic", "queue_id", "queue_offset", "offset", "size", "tags_code")
    assert entries(asked, log_id, *columns) == sorted(written)


def test_batch_queues_equal_the_files_of_the_broker(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    columns = ("topic", "queue_id", "offset", "size", "tags_code", "store_timestamp", "base_offset", "count")
    rows = [tuple(row[name] for name in columns) for row in asked.rows("batch_consume_queue", log_id)]
    file = fixture_log.path / "batchconsumequeue.jsonl"
    queues = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    written = [(queue["topic"], queue["queue_id"], *entry[:-1]) for queue in queues for entry in queue["entries"]]
    assert len(written) == {"4.9.7": 0, "5.5.0": 8}[fixture_log.version]
    assert sorted(rows) == sorted((*row[:5], time(row[5]), *row[6:]) for row in written)


def test_a_record_is_in_its_light_queues_too(asked: Asked) -> None:
    found = entries(asked, QUEUES, "topic", "queue_id", "queue_offset", "offset", "tags_code")
    own = [
        ("chat", 3, 5, 0, 9),
        ("chat", 0, 6, 400, 0),
        ("chat", 0, 7, 500, 0),
        ("chat", 0, 8, 600, 0),
        *((topic, 0, 0, offset, 0) for offset, topic in ((100, "%RETRY%chat"), (200, "SCHEDULE_TOPIC_XXXX"))),
        ("rmq_sys_wheel_timer", 0, 0, 300, 0),
    ]
    light = [("%LMQ%a", 0, 7, 0, 9), ("%LMQ%b", 0, 0, 0, 9), ("%LMQ%a", 0, 8, 500, 0)]
    assert [entry for entry in found if entry[0] != "plain"] == sorted(own + light)


def test_the_type_of_a_topic_is_told_or_seen(asked: Asked) -> None:
    """A topic of which nobody told is one for batches where it holds one; the others are as they were told."""
    rows = asked.rows("batch_consume_queue", QUEUES, "offset")
    batches = [(row["topic"], row["offset"], row["base_offset"], row["count"]) for row in rows]
    assert batches == [("told", 1000, 4, 1), ("seen", 1100, 40, 3), ("seen", 1200, 0, 1), ("seen", 1300, 43, 1)]
    assert [entry for entry in entries(asked, QUEUES, "offset") if entry >= (1000,)] == [(1400,)]
