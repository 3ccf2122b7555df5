"""Topics of made rows, with the views over them: tables as they are in a warehouse that only replicates Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from sinks.tables import INCIDENTS, KAFKA_LOG, LEDGER, TableSpec
from sinks.views.definition import view
from sinks.views.registration import frames, newest_versions
from sinks.warehouse import absolute

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
ORDERS = "kafka/prod/orders"

_VIEWS = ("kafka_records", "kafka_lag", "completeness")
"""To make all views takes seconds, most of them for those of RocketMQ."""

Row = dict[str, Any]


def record(offset: int, partition: int = 0, **fields: Any) -> Row:
    """A row of table kafka_log; `fields` are its columns. Headers are pairs."""
    usual = {
        "log_id": f"{ORDERS}/{partition}",
        "epoch": 0,
        "offset": offset,
        "leader_epoch": 0,
        "topic": "orders",
        "partition": partition,
        "timestamp": NOON,
        "timestamp_type": "create_time",
        "value": b"",
        "headers": [],
    }
    fields["headers"] = [{"key": key, "value": value} for key, value in fields.get("headers", [])]
    return usual | fields


def ranges_of(partition: int, *edges: tuple[int, int], **fields: Any) -> list[Row]:
    """Rows of the ledger, one for each start and end."""
    usual = {"epoch": 0, "records": 1, "bytes": 1, "origin": "stream", "committed_at": NOON}
    log_id = f"{ORDERS}/{partition}"
    return [usual | {"log_id": log_id, "start": start, "end": end} | fields for start, end in edges]


def loss(partition: int, start: int, end: int, action: str, state: str = "open") -> Row:
    """A row of table incidents."""
    place = {"log_id": f"{ORDERS}/{partition}", "epoch": 0, "id": f"{partition}-{start}", "condition": "below_minimum"}
    return place | {"start": start, "end": end, "action": action, "state": state, "detected_at": NOON}


def session_with(
    spark: SparkSession,
    warehouse: Path,
    records: Iterable[Row] = (),
    *,
    ledger: Iterable[Row] = (),
    incidents: Iterable[Row] = (),
) -> SparkSession:
    """A session of its own with the tables of a replica in `warehouse` that has exactly these rows; Kafka's views."""
    tables: Mapping[TableSpec, Iterable[Row]] = {KAFKA_LOG: records, LEDGER: ledger, INCIDENTS: incidents}
    for spec, rows in tables.items():
        write_deltalake(spec.path(str(warehouse)), pa.Table.from_pylist(list(rows), spec.schema.remove_metadata()))
    session = spark.newSession()
    place = absolute(str(warehouse))
    for spec, frame in frames(session, place, newest_versions(session, place)):
        frame.createOrReplaceTempView(spec.name)
    for name in _VIEWS:
        session.sql(view(name).created(temporary=True))
    return session
