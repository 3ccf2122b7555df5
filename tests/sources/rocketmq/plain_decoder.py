"""`columns.decode` the dumb way: one record after the other, one Python value a field. What the fast one must equal."""

from typing import Any

import pyarrow as pa

from sources.offsets import Offset
from sources.records import RECORD_SCHEMA
from sources.rocketmq.format import commitlog, properties
from sources.rocketmq.format.commitlog import Blank, Message
from sources.rocketmq.format.layout import Limits

Row = dict[str, Any]
FIRST_MS, END_MS = -62_135_596_800_000, 253_402_300_800_000
"""The beginning of year 1, and of year 10000."""
SAME = ("offset", "size", "topic", "queue_id", "queue_offset", "magic", "body_crc", "flag", "sys_flag",
        "reconsume_times", "prepared_transaction_offset")  # fmt: skip


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
    return {name: getattr(record, name) for name in SAME} | {
        "kind": "message",
        "tags": pairs.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "unique_key": pairs.get("UNIQ_KEY"),
        "store_timestamp": _time_us(record.store_timestamp_ms),
        "born_timestamp": _time_us(record.born_timestamp_ms),
        "body": body,
        "properties": pairs,
        "born_host": str(record.born_host),
        "store_host": str(record.store_host),
        "tags_code": _tags_code(record, pairs),
        "stored_properties": record.properties,
        "stored_body": _stored_body(record, body),
    }


def _time_us(time_ms: int) -> int | None:
    return time_ms * 1000 if FIRST_MS <= time_ms < END_MS else None


def _stored_body(record: Message, body: bytes | None) -> bytes | None:
    if None in (_time_us(record.born_timestamp_ms), _time_us(record.store_timestamp_ms)):
        return commitlog.encode(record)
    return None if body == record.body else record.body


def _tags_code(record: Message, pairs: dict[str, str]) -> int:
    waits_ms = properties.delay_ms(pairs["DELAY"]) if "DELAY" in pairs else None
    if record.topic == "SCHEDULE_TOPIC_XXXX" and waits_ms is not None:
        return (record.store_timestamp_ms + waits_ms + 2**63) % 2**64 - 2**63  # as Java adds
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
