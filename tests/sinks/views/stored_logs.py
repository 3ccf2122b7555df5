"""Logs that a test lets a broker store, record by record, and what a view says of them; rows as values to compare.

The bytes come from the project's own codec: offsets, message ids, queue offsets and tags codes are what they are in a
real log. A view is looked at once for all scenarios of a module, each of which has a log of its own: what is in one
must not show in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from sources.offsets import Offset
from sources.rocketmq.columns import codec
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import Message
from sources.rocketmq.format.properties import encode
from tests.sinks.views.made_logs import session_with
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
        """Its rows of table log."""
        records = codec.decode(self._stored, Offset(0), Offset(len(self._stored))).records
        return [{"log_id": self.log_id, "epoch": 0} | row for row in records.to_pylist()]


Row = dict[str, Any]
Scenario = Callable[[StoredLog], list[Row]]
"""Writes a log and returns the columns that matter of the rows that a view must have of it, in order."""


class Told:
    """What a view says of each scenario."""

    def __init__(
        self, spark: SparkSession, warehouse: Path, view: str, order: str, scenarios: Sequence[Scenario]
    ) -> None:
        logs = {scenario.__name__: StoredLog(f"rocketmq/{scenario.__name__}") for scenario in scenarios}
        self._expected = {scenario.__name__: scenario(logs[scenario.__name__]) for scenario in scenarios}
        session = session_with(spark, warehouse, [row for log in logs.values() for row in log.rows()], view)
        self._found = rows(session.table(view).orderBy(expr(order)))

    def check(self, scenario: Scenario) -> None:
        """The view has the rows that the scenario says, and no more."""
        name, expected = scenario.__name__, self._expected[scenario.__name__]
        found = [row for row in self._found if row["log_id"] == f"rocketmq/{name}"]
        assert [
            {column: row[column] for column in wanted} for row, wanted in zip(found, expected, strict=True)
        ] == expected


def message_id(stored: Message) -> str:
    """Address of the broker and offset: what the broker calls the message (specification, section 1.8)."""
    return f"{stored.store_host.pack().hex()}{stored.offset:016x}".upper()


def time(at_ms: int | None) -> datetime | None:
    """Milliseconds since 1970 as a timestamp; None stays None."""
    return None if at_ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def rows(frame: DataFrame) -> list[Row]:
    """All rows, times in UTC."""
    found: list[Row] = frame.toArrow().to_pylist()
    return found


def rows_of(session: SparkSession, view: str, log_id: str, order: str) -> list[Row]:
    """What a view has of one log, without the log's id."""
    return rows(session.table(view).where(col("log_id") == log_id).drop("log_id").orderBy(order))
