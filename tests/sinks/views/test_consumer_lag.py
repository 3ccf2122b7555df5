"""Who is behind and by how much: by what brokers kept of their groups and queues, and by made ones."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from sinks.tables import LOG, metadata_table
from sources.metadata import CONSUMER_OFFSETS, TOPICS
from tests.sinks.views.lake import Asked, Row, version
from tests.sinks.views.made_logs import NOON, message
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


def test_queues_and_offsets_are_the_brokers(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    ends = {(queue["topic"], queue["queue_id"]): len(queue["entries"]) for queue in fixture_log.consume_queues}
    expected = []
    for group, topic, queue, at in committed(fixture_log):
        end = ends.get((topic, queue), 0)
        expected.append((group, topic, queue, end, at, end - at))
    found = sorted(tuple(row[name] for name in COLUMNS) for row in asked.rows("consumer_lag", log_id))
    assert found == sorted(expected)
    assert any(behind > 0 for *_, behind in expected)


LAG = "rocketmq/lag"
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


def put(offset: int, second: int, topic: str = "orders", **fields: Any) -> Row:
    return message(offset, topic, log_id=LAG, store_timestamp=NOON + second * SECOND, **fields)


def batch(offset: int, second: int, base: int) -> Row:
    inner = {"INNER_NUM": "3", "INNER_BASE": str(base)}
    return put(offset, second, "batches", queue_offset=base, sys_flag=192, properties=inner)


def committed_at(since: datetime, until: datetime | None, *, is_first: bool) -> list[Row]:
    names = ("topic", "consumer_group", "queue_id", "next_queue_offset")
    return [
        version(LAG, since, dict(zip(names, (*queue, 0 if is_first else at), strict=True)), until)
        for queue, at in GROUPS.items()
    ]


MADE_ROWS = {
    LOG: [
        *(put(at, at, queue_offset=at) for at in range(3)),
        put(10, 5, queue_id=1),
        batch(20, 6, 0),
        batch(21, 7, 3),
        put(30, 9, "c1", properties={"CLUSTER": "c1"}),
    ],
    metadata_table(CONSUMER_OFFSETS): [
        *committed_at(NOON, NOON + SECOND, is_first=True),
        *committed_at(NOON + SECOND, None, is_first=False),
    ],
    metadata_table(TOPICS): [
        version(LAG, NOON, {"topic": topic, "read_queue_nums": queues}) for topic, queues in (("orders", 2), ("c1", 1))
    ],
}
"""Queue 0 of orders has three entries, one a second, queue 1 one; batches has two of three each."""


@pytest.fixture(scope="module")
def made(asked: Asked) -> list[Row]:
    return asked.rows("consumer_lag", LAG)


def lag(made: list[Row], topic: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    """(group, queue) -> end, next, behind, seconds behind, last consumed in seconds after noon."""
    names = ("end_queue_offset", "next_queue_offset", "messages_behind", "seconds_behind")
    return {
        (row["consumer_group"], row["queue_id"]): (*(row[name] for name in names), after_noon(row))
        for row in made
        if row["topic"] == topic
    }


def after_noon(row: Row) -> float | None:
    last = row["last_consumed_timestamp"]
    return None if last is None else (last - NOON) / SECOND


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


def test_topics_without_entries_of_inner_batches_and_of_the_broker(made: list[Row]) -> None:
    assert lag(made, "expired") == {("slow", 0): (7, 7, 0, 0.0, None)}  # as far as the group
    assert lag(made, "%RETRY%slow") == {("slow", 0): (0, 0, 0, 0.0, None)}
    assert lag(made, "batches") == {("slow", 0): (6, 4, 2, 2.0, 7)}  # inside the second batch, message by message
    assert lag(made, "c1") == {}
