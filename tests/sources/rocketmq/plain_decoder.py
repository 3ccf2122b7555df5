"""`columns.decode` the dumb way: one record after the other, one Python value a field. What the fast one must equal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sources.master import RECORD_SCHEMA
from sources.offsets import Offset
from sources.rocketmq.format import commitlog, properties
from sources.rocketmq.format.commitlog import Blank, Limits, Message

Row = dict[str, Any]


def decode(data: bytes, start: int, stop: int, limits: Limits | None = None) -> tuple[list[Row], int]:
    """The rows and the end that `columns.decode` must give, where `max_decompressed_bytes` does not matter."""
    limits = limits or Limits()
    rows: list[Row] = []
    at = 0
    while start + at < stop:
        record = commitlog.decode(data, at, Offset(start + at), limits)
        if record is None:
            break
        rows.append(row_of(record, limits))
        at += record.size
    return rows, start + at


def row_of(record: Message | Blank, limits: Limits) -> Row:
    """A record as a row, times in microseconds and the map as a dict."""
    if isinstance(record, Blank):
        blank = {"offset": record.offset, "size": record.size, "kind": "blank", "magic": commitlog.BLANK}
        return {**dict.fromkeys(RECORD_SCHEMA.names), **blank, "stored_body": record.rest if any(record.rest) else None}
    pairs = properties.decode(record.properties)
    body = commitlog.decompress(record.body, record.sys_flag, limits)
    keys = pairs.get("KEYS")
    return {
        "offset": record.offset,
        "size": record.size,
        "kind": "message",
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "tags": pairs.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "unique_key": pairs.get("UNIQ_KEY"),
        "store_timestamp": record.store_timestamp_ms * 1000,
        "born_timestamp": record.born_timestamp_ms * 1000,
        "body": body,
        "properties": pairs,
        "magic": record.magic,
        "body_crc": record.body_crc,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born_host": str(record.born_host),
        "store_host": str(record.store_host),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "tags_code": _tags_code(record, pairs),
        "stored_properties": record.properties,
        "stored_body": None if body == record.body else record.body,
    }


def _tags_code(record: Message, pairs: dict[str, str]) -> int:
    waits_ms = properties.delay_ms(pairs["DELAY"]) if "DELAY" in pairs else None
    if record.topic == "SCHEDULE_TOPIC_XXXX" and waits_ms is not None:
        return record.store_timestamp_ms + waits_ms
    return properties.java_hash(pairs.get("TAGS", ""))


def rows_of(records: pa.RecordBatch) -> list[Row]:
    """A batch as such rows. A map with a repeated name is an error."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(records.schema.names, records.columns, strict=True):
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        columns[name] = plain.to_pylist()
    for pairs in filter(None, columns["properties"]):
        assert len(dict(pairs)) == len(pairs)
    columns["properties"] = [None if pairs is None else dict(pairs) for pairs in columns["properties"]]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
