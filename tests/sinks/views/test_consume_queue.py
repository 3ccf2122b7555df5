"""Queues as the brokers built them, entry for entry; and what their files cannot show here."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, unix_millis

from sinks.history.metadata import MetadataTable
from sources.metadata import TOPICS
from sources.offsets import LogId
from sources.rocketmq.metadata import items_of
from tests.sinks.views.conftest import FETCHED
from tests.sinks.views.made_logs import message, session_with
from tests.truth import Fixture

pytestmark = pytest.mark.spark

LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "7,0"}
BATCH = {"INNER_BASE": "40", "INNER_NUM": "3"}


def plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().optimizedPlan().toString()
    return plan


@pytest.fixture(scope="session")
def queued(views: SparkSession) -> list[Row]:
    """The entries of all queues of both real logs."""
    columns = ("log_id", "topic", "queue_id", "queue_offset", "offset", "size", "tags_code")
    return views.table("consume_queue").select(*columns).collect()


def test_it_equals_the_files_of_the_broker(queued: list[Row], fixture_log: Fixture, log_id: str) -> None:
    entries = [
        (queue["topic"], queue["queue_id"], number, *entry)
        for queue in fixture_log.consume_queues
        for number, entry in enumerate(queue["entries"], queue["first_index"])
    ]
    assert len(entries) > 3000
    assert sorted(row[1:] for row in queued if row.log_id == log_id) == sorted(entries)


def test_batch_queues_equal_the_files_of_the_broker(views: SparkSession, fixture_log: Fixture, log_id: str) -> None:
    queue = views.table("batch_consume_queue").where(col("log_id") == log_id)
    stored_ms = unix_millis("store_timestamp")
    rows = queue.select("topic", "queue_id", "offset", "size", "tags_code", stored_ms, "base_offset", "count").collect()
    file = fixture_log.path / "batchconsumequeue.jsonl"
    queues = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    entries = [(queue["topic"], queue["queue_id"], *entry[:-1]) for queue in queues for entry in queue["entries"]]
    assert len(entries) == {"4.9.7": 0, "5.5.0": 8}[fixture_log.version]
    assert sorted(map(tuple, rows)) == sorted(entries)


def test_who_asks_for_a_topic_is_spared_the_light_queues(views: SparkSession) -> None:
    asked = views.sql("SELECT queue_offset, offset FROM consume_queue WHERE topic = 'orders'")
    assert "INNER_MULTI" not in plan_of(asked)
    assert "INNER_MULTI" in plan_of(views.sql("SELECT offset FROM consume_queue"))


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Light queues below offset 1000, topics of several types above."""
    warehouse = tmp_path_factory.mktemp("queues")
    rows = [
        message(0, "chat", queue_id=3, queue_offset=5, tags_code=9, properties=LIGHT),
        message(100, "%RETRY%chat", properties=LIGHT),
        message(200, "SCHEDULE_TOPIC_XXXX", properties=LIGHT),
        message(300, "rmq_sys_wheel_timer", properties=LIGHT),
        message(400, "chat", queue_offset=6, properties=LIGHT | {"INNER_MULTI_QUEUE_OFFSET": "8"}),
        message(500, "chat", queue_offset=7, properties=LIGHT | {"INNER_MULTI_QUEUE_OFFSET": "8,x"}),
        message(600, "chat", queue_offset=8, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}),
        message(700, "chat", queue_offset=9, sys_flag=4, properties=LIGHT),
        message(1000, "told", queue_offset=4),
        message(1100, "seen", queue_offset=40, sys_flag=192, properties=BATCH),
        message(1200, "seen", queue_offset=0),
        message(1300, "seen", queue_offset=43, sys_flag=192, properties=BATCH | {"INNER_NUM": "many"}),
        message(1400, "plain", queue_offset=0, sys_flag=192),
    ]
    config = {"told": {"attributes": {"queue.type": "BatchCQ"}}, "plain": {"attributes": {}}}
    items = items_of(TOPICS, json.dumps({"topicConfigTable": config}).encode())
    MetadataTable(spark, str(warehouse), LogId("rocketmq", "broker-a"), TOPICS).record(items, FETCHED)
    return session_with(spark, warehouse, rows, "consume_queue", "batch_consume_queue")


def test_a_record_is_in_its_light_queues_too(made: SparkSession) -> None:
    rows = made.sql("SELECT topic, queue_id, queue_offset, offset, tags_code FROM consume_queue WHERE offset < 1000")
    own = [
        ("chat", 3, 5, 0, 9),
        ("chat", 0, 6, 400, 0),
        ("chat", 0, 7, 500, 0),
        ("chat", 0, 8, 600, 0),
        *((topic, 0, 0, offset, 0) for offset, topic in ((100, "%RETRY%chat"), (200, "SCHEDULE_TOPIC_XXXX"))),
        ("rmq_sys_wheel_timer", 0, 0, 300, 0),
    ]
    light = [("%LMQ%a", 0, 7, 0, 9), ("%LMQ%b", 0, 0, 0, 9), ("%LMQ%a", 0, 8, 500, 0)]
    assert sorted(map(tuple, rows.collect())) == sorted(own + light)


def test_the_type_of_a_topic_is_told_or_seen(made: SparkSession) -> None:
    """A topic of which nobody told is one for batches where it holds one; the others are as they were told."""
    batches = made.sql("SELECT topic, offset, base_offset, count FROM batch_consume_queue ORDER BY offset").collect()
    assert batches == [("told", 1000, 4, 1), ("seen", 1100, 40, 3), ("seen", 1200, 0, 1), ("seen", 1300, 43, 1)]
    assert made.sql("SELECT offset FROM consume_queue WHERE offset >= 1000").collect() == [(1400,)]
