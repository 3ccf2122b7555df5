"""Messages, bytes and producers of each topic in each hour, against a count by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.sinks.views.made_logs import NOON, message, session_with
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


def test_each_hour_of_each_topic(views: SparkSession, fixture_log: Fixture, log_id: str) -> None:
    times = (
        "unix_seconds(hour) AS began",
        "unix_millis(first_delivered_timestamp) AS first",
        "unix_millis(last_delivered_timestamp) AS last",
    )
    rows = views.table("topic_stats").where(f"log_id = '{log_id}'").selectExpr("*", *times).collect()
    expected = counted(fixture_log)
    found = {(row.topic, datetime.fromtimestamp(row.began, UTC)): row for row in rows}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        wanted = expected[key]
        assert (row.messages, row.producers) == (wanted["messages"], len(wanted["hosts"])), key
        between = (datetime.fromtimestamp(row["first"] / 1000, UTC), datetime.fromtimestamp(row["last"] / 1000, UTC))
        assert between == (wanted["first"], wanted["last"]), key
        if key[0] != "inner-batch":  # the bodies in it are what counts there
            assert row.body_bytes == wanted["bytes"], key


def test_hours_producers_and_bodies_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    hosts = ("10.0.0.7:1", "10.0.0.7:2", "[0:0:0:0:0:0:0:1]:3", "[0:0:0:0:0:0:0:1]:4")
    rows = [message(at, born_host=host, body=b"12345", store_timestamp=NOON) for at, host in enumerate(hosts)]
    rows.append(message(10, body=None, store_timestamp=NOON + 60 * MINUTE))
    session = session_with(spark, tmp_path, rows, "topic_stats")
    found = session.sql("SELECT unix_seconds(hour), messages, body_bytes, producers FROM topic_stats ORDER BY hour")
    noon = int(NOON.timestamp())
    assert found.collect() == [(noon, 4, 20, 2), (noon + 3600, 1, 0, 1)]
