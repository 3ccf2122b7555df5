"""Rows of a replica back to the master's bytes, one by one, to name the row that is wrong.

`restore` does many rows at once, and leaves to this module the rows that it cannot take.
"""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import TIMESTAMP
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import BORN_HOST_IPV6, STORE_HOST_IPV6, Blank, Host, Limits, Message
from sources.rocketmq.format.layout import BLANK, HEAD

_HINT = "The row was not written by a replication of this log, or was changed since: replicate its range anew."
_US_PER_MS = 1000
COLUMNS = (
    "offset", "size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "sys_flag", "born_timestamp",
    "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "topic",
    "stored_properties", "body", "stored_body",
)  # fmt: skip


def encode_rows(records: pa.RecordBatch) -> list[bytes]:
    """Return the master's bytes of each of `records`, which have at least the COLUMNS of RECORD_SCHEMA.

    Raises CorruptRecord for a row that `decode` cannot have made: a field is missing or impossible, or the resulting
    record has another size than the row says.
    """
    parse_host = functools.cache(Host.parse)
    rows = zip(*(_values(records, name) for name in COLUMNS), strict=True)
    return [_encode_row(row, parse_host) for row in rows]


def _values(records: pa.RecordBatch, name: str) -> list[Any]:
    """Return a column as Python values; times in microseconds."""
    column = records.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(TIMESTAMP).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _encode_row(row: tuple[Any, ...], parse_host: Any) -> bytes:
    offset, size, magic = row[:3]
    try:
        encoded = commitlog.encode(_blank(row) if magic == BLANK else _message(_filled(row), parse_host))
    except (ValueError, KeyError) as error:
        raise CorruptRecord("the row is no record", offset=offset, found=error, hint=_HINT) from error
    if len(encoded) != size:
        raise CorruptRecord(
            "the row gives a record of another size",
            offset=offset,
            expected=f"{size} bytes",
            found=f"{len(encoded)} bytes",
            hint=_HINT,
        )
    return encoded


def _blank(row: tuple[Any, ...]) -> Blank:
    offset, size, rest = row[0], row[1], row[-1]
    if offset is None or size is None:
        raise ValueError("null, where a blank has a value")
    return Blank(offset, size, bytes(size - HEAD.size) if rest is None else rest)


def _message(row: tuple[Any, ...], parse_host: Any) -> Message:
    (offset, _size, magic, crc, queue_id, flag, queue_offset, sys_flag, born_us, born_host, store_us, store_host,
     reconsume_times, prepared_transaction_offset, topic, properties, body, stored_body) = row  # fmt: skip
    stored = body if stored_body is None else stored_body
    if stored is None or None in row[:-2]:
        raise ValueError("null, where a message has a value")
    return Message(
        magic=magic,
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        offset=Offset(offset),
        sys_flag=sys_flag,
        born_timestamp_ms=_whole_ms(born_us),
        born_host=parse_host(born_host, ipv6=bool(sys_flag & BORN_HOST_IPV6)),
        store_timestamp_ms=_whole_ms(store_us),
        store_host=parse_host(store_host, ipv6=bool(sys_flag & STORE_HOST_IPV6)),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=stored,
        topic=topic,
        properties=properties,
    )


def _filled(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `row` with what its `stored_body` says, if that is the whole record because no table takes its times."""
    named = dict(zip(COLUMNS, row, strict=True))
    stored = named["stored_body"]
    if stored is None or None not in (named["born_timestamp"], named["store_timestamp"]):
        return row
    record = commitlog.decode(stored, 0, named["offset"], Limits(max_record_bytes=len(stored)))
    if not isinstance(record, Message):
        raise ValueError("no message in stored_body, which has what is null as a time")
    for name, time_ms in (("born", record.born_timestamp_ms), ("store", record.store_timestamp_ms)):
        if named[f"{name}_timestamp"] is None:
            named[f"{name}_timestamp"] = time_ms * _US_PER_MS
    return tuple((named | {"stored_body": record.body}).values())


def _whole_ms(time_us: int) -> int:
    time_ms, rest_us = divmod(time_us, _US_PER_MS)
    if rest_us:
        raise ValueError(f"a time of {time_us} µs, which is no whole millisecond")
    return time_ms
