"""Who is behind and by how much: by what brokers kept of their groups and queues, and by made ones."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from sinks.history.metadata import MetadataTable
from sources.metadata import CONSUMER_OFFSETS, TOPICS, MetadataKind
from tests.sinks.memory_master import BROKER_A
from tests.sinks.views.made_logs import NOON, message, session_with
from tests.truth import Fixture

pytestmark = pytest.mark.spark

COLUMNS = ("consumer_group", "topic", "queue_id", "end_queue_offset", "next_queue_offset", "messages_behind")
SECOND = timedelta(seconds=1)


def committed(fixture: Fixture) -> list[tuple[str, str, int, int]]:
    """(group, topic, queue, next queue offset) of topics that are not the broker's own, as it wrote them down."""
    text = (fixture.path / "config" / "consumerOffset.json").read_text()
    table = json.loads(re.sub(r"\b(\d+):", r'"\1":', text))["offsetTable"]  # its numbers are unquoted
    named = [(*item.split("@"), queues) for item, queues in table.items()]
    return [
        (group, topic, int(queue), at)
        for topic, group, queues in named
        if not topic.startswith("RMQ_SYS_")
        for queue, at in queues.items()
    ]


@pytest.fixture(scope="module")
def lags(views: SparkSession) -> list[Row]:
    """The whole view, of both logs."""
    return views.table("consumer_lag").selectExpr("*", "unix_millis(last_consumed_timestamp) AS last").collect()


def test_queues_and_offsets_are_the_brokers(lags: list[Row], fixture_log: Fixture, log_id: str) -> None:
    ends = {(queue["topic"], queue["queue_id"]): len(queue["entries"]) for queue in fixture_log.consume_queues}
    expected = []
    for group, topic, queue, at in committed(fixture_log):
        end = ends.get((topic, queue), 0)
        expected.append((group, topic, queue, end, at, end - at))
    assert sorted(tuple(row[name] for name in COLUMNS) for row in lags if row.log_id == log_id) == sorted(expected)
    assert any(behind > 0 for *_, behind in expected)


def test_times_are_those_of_the_records(lags: list[Row], fixture_log: Fixture, log_id: str) -> None:
    """Of the next message, of the one before it, and of the newest record of the log."""
    stored = {row["physical_offset"]: row["store_timestamp"] for row in fixture_log.rows if not row.get("blank")}
    entries = {(queue["topic"], queue["queue_id"]): queue["entries"] for queue in fixture_log.consume_queues}
    expected = {}
    for _, topic, queue, at in committed(fixture_log):
        of = [stored[offset] for offset, *_ in entries.get((topic, queue), [])]
        behind_s = (max(stored.values()) - of[at]) / 1000 if at < len(of) else 0.0
        expected[topic, queue] = (of[at - 1] if at else None, behind_s)
    found = {(row.topic, row.queue_id): (row["last"], row.seconds_behind) for row in lags if row.log_id == log_id}
    assert found == expected


GROUPS = {
    ("orders", "slow", 0): 1,
    ("orders", "fast", 0): 3,
    ("orders", "ahead", 0): 5,
    ("orders", "old", 0): 0,
    ("expired", "slow", 0): 7,
    ("%RETRY%slow", "slow", 0): 0,
    ("batches", "slow", 0): 4,
    ("c1", "slow", 0): 0,
}


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The view, where queue 0 of orders has three entries, one a second, queue 1 one; batches has two of three each."""
    lake = Path(tmp_path_factory.mktemp("lag"))
    rows = [message(at, queue_offset=at, store_timestamp=NOON + at * SECOND) for at in range(3)]
    rows.append(message(10, queue_id=1, store_timestamp=NOON + 5 * SECOND))
    for at in range(2):
        inner = {"INNER_NUM": "3", "INNER_BASE": str(3 * at)}
        stored = NOON + (6 + at) * SECOND
        rows.append(
            message(20 + at, "batches", queue_offset=3 * at, sys_flag=192, properties=inner, store_timestamp=stored)
        )
    rows.append(message(30, "c1", properties={"CLUSTER": "c1"}, store_timestamp=NOON + 9 * SECOND))
    offsets = [
        {"topic": topic, "consumer_group": group, "queue_id": queue, "next_queue_offset": at}
        for (topic, group, queue), at in GROUPS.items()
    ]
    record(spark, lake, CONSUMER_OFFSETS, [{**one, "next_queue_offset": 0} for one in offsets], NOON)
    record(spark, lake, CONSUMER_OFFSETS, offsets, NOON + SECOND)
    record(
        spark, lake, TOPICS, [{"topic": "orders", "read_queue_nums": 2}, {"topic": "c1", "read_queue_nums": 1}], NOON
    )
    last = f"unix_seconds(last_consumed_timestamp) - {int(NOON.timestamp())} AS last"
    return session_with(spark, lake, rows, "consumer_lag").table("consumer_lag").selectExpr("*", last).collect()


def record(spark: SparkSession, lake: Path, kind: MetadataKind, items: list[dict[str, Any]], at: datetime) -> None:
    MetadataTable(spark, str(lake), BROKER_A, kind).record(pa.Table.from_pylist(items, schema=kind.schema), at)


def lag(made: list[Row], topic: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    """(group, queue) -> end, next, behind, seconds behind, last consumed in seconds after noon."""
    names = ("end_queue_offset", "next_queue_offset", "messages_behind", "seconds_behind", "last")
    rows = (row for row in made if row.topic == topic)
    return {(row.consumer_group, row.queue_id): tuple(row[name] for name in names) for row in rows}


def test_groups_of_one_queue(made: list[Row]) -> None:
    found = lag(made, "orders")
    assert found["slow", 0] == (3, 1, 2, 8.0, 0)  # its next message was stored at second 1, the newest record at 9
    assert found["fast", 0] == (3, 3, 0, 0.0, 2)
    assert found["old", 0] == (3, 0, 3, 9.0, None)
    assert found["ahead", 0] == (5, 5, 0, 0.0, None)  # fetched after the log was read


def test_a_queue_that_a_group_never_read_counts_from_its_beginning(made: list[Row]) -> None:
    """As the broker's own consumerProgress does, by the queues that the topic is configured with."""
    found = lag(made, "orders")
    assert {group: found[group, 1] for group in ("slow", "fast")} == dict.fromkeys(
        ("slow", "fast"), (1, None, 1, 4.0, None)
    )


def test_a_queue_without_entries_is_as_far_as_the_group(made: list[Row]) -> None:
    assert lag(made, "expired") == {("slow", 0): (7, 7, 0, 0.0, None)}
    assert lag(made, "%RETRY%slow") == {("slow", 0): (0, 0, 0, 0.0, None)}


def test_messages_of_inner_batches_count_one_by_one(made: list[Row]) -> None:
    assert lag(made, "batches") == {("slow", 0): (6, 4, 2, 2.0, 7)}  # inside the second batch


def test_topics_of_the_broker_are_left_out(made: list[Row]) -> None:
    assert lag(made, "c1") == {}
