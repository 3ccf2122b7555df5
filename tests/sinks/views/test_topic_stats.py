"""Messages, bytes and producers of each topic in each hour, against a count by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sinks.tables import LOG
from tests.sinks.views.lake import Asked
from tests.sinks.views.made_logs import NOON, message
from tests.truth import Fixture

pytestmark = pytest.mark.spark

OF_THE_BROKER = ("RMQ_SYS_", "SCHEDULE_TOPIC_XXXX", "rmq_sys_", "%RETRY%", "%DLQ%")
MINUTE = timedelta(minutes=1)


def counted(fixture: Fixture) -> dict[tuple[str, datetime], dict[str, Any]]:
    """By topic and hour, from the truth about each record."""
    found: dict[tuple[str, datetime], dict[str, Any]] = {}
    for row in fixture.rows:
        if row.get("blank") or row["topic"].startswith(OF_THE_BROKER):
            continue
        at = datetime.fromtimestamp(row["store_timestamp"] / 1000, UTC)
        hour = found.setdefault(
            (row["topic"], at.replace(minute=0, second=0, microsecond=0)),
            {"messages": 0, "bytes": 0, "hosts": set(), "first": at, "last": at},
        )
        hour["messages"] += int(row["properties"].get("INNER_NUM", 1)) if row["sys_flag"] & 128 else 1
        hour["bytes"] += row["body_len_decompressed"]
        hour["hosts"].add(row["born_host"].rpartition(":")[0])
        hour["first"], hour["last"] = min(hour["first"], at), max(hour["last"], at)
    return found


def test_each_hour_of_each_topic(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    expected = counted(fixture_log)
    found = {(row["topic"], row["hour"]): row for row in asked.rows("topic_stats", log_id)}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        wanted = expected[key]
        assert (row["messages"], row["producers"]) == (wanted["messages"], len(wanted["hosts"])), key
        between = (row["first_delivered_timestamp"], row["last_delivered_timestamp"])
        assert between == (wanted["first"], wanted["last"]), key
        if key[0] != "inner-batch":  # the bodies in it are what counts there
            assert row["body_bytes"] == wanted["bytes"], key


HOSTS = ("10.0.0.7:1", "10.0.0.7:2", "[0:0:0:0:0:0:0:1]:3", "[0:0:0:0:0:0:0:1]:4")
MADE_ROWS = {
    LOG: [
        *(message(at, log_id="rocketmq/hours", born_host=host, body=b"12345") for at, host in enumerate(HOSTS)),
        message(10, log_id="rocketmq/hours", body=None, store_timestamp=NOON + 60 * MINUTE),
    ]
}


def test_hours_producers_and_bodies_that_cannot_be_read(asked: Asked) -> None:
    rows = asked.rows("topic_stats", "rocketmq/hours")
    found = sorted((row["hour"], row["messages"], row["body_bytes"], row["producers"]) for row in rows)
    assert found == [(NOON, 4, 20, 2), (NOON + 60 * MINUTE, 1, 0, 1)]
