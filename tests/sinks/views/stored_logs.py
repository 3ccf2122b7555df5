"""Logs that a test lets a broker store, record by record, each with what a view must say of it.

The bytes come from the project's own codec: offsets, message ids, queue offsets and tags codes are what they are in a
real log.
"""

import functools
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sources.offsets import Offset
from sources.rocketmq.columns import codec
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import Message
from sources.rocketmq.format.properties import encode
from tests.sinks.views.lake import Asked, Row
from tests.sources.rocketmq.records import message

START_MS = 1_795_000_000_000


class StoredLog:
    """Records end to end from offset 0 on, one a second from `START_MS` on."""

    def __init__(self, log_id: str) -> None:
        self.log_id = log_id
        self._stored = b""
        self._count = 0
        self._queues: Counter[tuple[str, int]] = Counter()

    def put(self, topic: str, properties: dict[str, str] | bytes, **fields: Any) -> Message:
        """Stores a message and says what it is now. `fields` are its other fields, where they matter."""
        queue = (topic, fields.get("queue_id", 0))
        stored = message(
            **{"queue_offset": self._queues[queue], "store_timestamp_ms": START_MS + 1000 * self._count} | fields,
            topic=topic,
            properties=properties if isinstance(properties, bytes) else encode(properties),
            offset=Offset(len(self._stored)),
        )
        self._stored += commitlog.encode(stored)
        self._count += 1
        self._queues[queue] += 1
        return stored

    def rows(self) -> list[dict[str, Any]]:
        records = codec.decode(self._stored, Offset(0), Offset(len(self._stored))).records
        return [{"log_id": self.log_id, "epoch": 0} | row for row in records.to_pylist()]


Scenario = Callable[[StoredLog], list[Row]]
"""Writes a log and returns the columns that matter of the rows that a view must have of it, in order."""


def made_rows(*scenarios: Scenario) -> list[Row]:
    """The rows of table log of each scenario's log."""
    return [row for scenario in scenarios for row in _written(scenario)[0].rows()]


def check(asked: Asked, view: str, scenario: Scenario, *order: str) -> None:
    """The view has the rows that the scenario says, and no more."""
    log, expected = _written(scenario)
    found = asked.rows(view, log.log_id, *order)
    assert [{name: row[name] for name in wanted} for row, wanted in zip(found, expected, strict=True)] == expected


@functools.cache
def _written(scenario: Scenario) -> tuple[StoredLog, list[Row]]:
    log = StoredLog(f"rocketmq/{scenario.__name__}")
    return log, scenario(log)


def message_id(stored: Message) -> str:
    """Address of the broker and offset: what the broker calls the message (specification, section 1.8)."""
    return f"{stored.store_host.pack().hex()}{stored.offset:016x}".upper()


def time(at_ms: int | None) -> datetime | None:
    """Milliseconds since 1970 as a timestamp; None stays None."""
    return None if at_ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
