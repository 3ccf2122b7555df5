"""Messages, bytes and producers of each topic in each hour."""

from datetime import timedelta
from typing import Any

import pytest

from sinks.tables import LOG
from tests.sinks.views.lake import Asked, Row
from tests.sinks.views.made_logs import NOON, message

pytestmark = pytest.mark.spark

MINUTE = timedelta(minutes=1)
HOSTS = ("10.0.0.7:1", "10.0.0.7:2", "[0:0:0:0:0:0:0:1]:3", "[0:0:0:0:0:0:0:1]:4")


def put(offset: int, **fields: Any) -> Row:
    return message(offset, log_id="rocketmq/hours", **fields)


MADE_ROWS = {
    LOG: [
        *(put(at, born_host=host, body=b"12345", store_timestamp=NOON + at * MINUTE) for at, host in enumerate(HOSTS)),
        put(10, body=None, store_timestamp=NOON + 60 * MINUTE),
    ]
}


def test_hours_producers_and_bodies_that_cannot_be_read(asked: Asked) -> None:
    rows = asked.rows("topic_stats", "rocketmq/hours")
    columns = ("hour", "messages", "body_bytes", "producers", "first_delivered_timestamp", "last_delivered_timestamp")
    assert sorted(tuple(row[name] for name in columns) for row in rows) == [
        (NOON, 4, 20, 2, NOON, NOON + 3 * MINUTE),
        (NOON + 60 * MINUTE, 1, 0, 1, NOON + 60 * MINUTE, NOON + 60 * MINUTE),
    ]
