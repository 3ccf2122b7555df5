"""A log of made rows, with the views over it: for what the real logs do not hold."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from sinks.tables import LOG, LOG_SCHEMA
from sinks.views.definition import named_in
from sinks.views.registration import register

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


def message(offset: int, topic: str | None = "orders", **fields: Any) -> dict[str, Any]:
    """A row of table log; `fields` are its columns, the properties a dict. Tags, keys and unique key follow from it."""
    properties = fields.pop("properties", {})
    keys = properties.get("KEYS")
    usual = {
        "log_id": "rocketmq/broker-a",
        "epoch": 0,
        "size": 100,
        "kind": "message",
        "queue_id": 0,
        "queue_offset": 0,
        "tags": properties.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "unique_key": properties.get("UNIQ_KEY"),
        "store_timestamp": NOON,
        "born_timestamp": NOON,
        "body": b"",
        "magic": -626843481,
        "body_crc": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_host": "10.0.0.7:49152",
        "store_host": "127.0.0.1:10911",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "tags_code": 0,
    }
    return usual | {"offset": offset, "topic": topic, "properties": list(properties.items())} | fields


def session_with(spark: SparkSession, warehouse: Path, rows: Iterable[dict[str, Any]], *views: str) -> SparkSession:
    """A session of its own with the tables of a replica whose log has exactly `rows`, and with these views."""
    write_deltalake(LOG.path(str(warehouse)), pa.Table.from_pylist(list(rows), LOG_SCHEMA), mode="overwrite")
    session = spark.newSession()
    register(session, str(warehouse), views=named_in(*views))
    return session
