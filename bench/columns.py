"""A commit log that becomes Arrow, by tasks' decoder, or values, by that of single records: for `bench.quick`."""

from __future__ import annotations

from sources.offsets import Offset
from sources.rocketmq.format import commitlog, properties


def make_log(messages: int, body_bytes: int) -> bytes:
    """A log of plain messages, eight properties each, as a 5.x broker stores them."""
    parts: list[bytes] = []
    at = 0
    for number in range(messages):
        record = commitlog.encode(make_message(number, at, body_bytes))
        parts.append(record)
        at += len(record)
    return b"".join(parts)


def make_message(number: int, offset: int, body_bytes: int) -> commitlog.Message:
    body = (number.to_bytes(8, "big") * (body_bytes // 8 + 1))[:body_bytes]
    names = {
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": f"7F00000100002A9F18B4AAC2{number:08X}",
        "CLUSTER": "DefaultCluster",
        "TAGS": f"Tag{number % 16}",
        "KEYS": f"order-{number} customer-{number % 1000}",
        "WAIT": "true",
        "TRACE_ON": "true",
        "trace-id": f"{number * 2654435761 % 2**64:016x}",
    }
    return commitlog.Message(
        magic=commitlog.V1,
        body_crc=commitlog.body_crc(body),
        queue_id=number % 8,
        flag=0,
        queue_offset=number // 8,
        offset=Offset(offset),
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000 + number,
        born_host=commitlog.Host(bytes((10, 0, 0, number % 32)), 40000 + number % 32),
        store_timestamp_ms=1_700_000_000_001 + number,
        store_host=commitlog.Host(bytes((10, 0, 1, 1)), 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=("orders", "payments", "user-events", "telemetry")[number % 4],
        properties=properties.encode(names),
    )


def decode_records(log: bytes) -> None:
    """Decode every field to a Python object, with the properties, as a plain decoder has to do for a row."""
    at = 0
    while at < len(log):
        record = commitlog.decode(log, at, Offset(at))
        if not isinstance(record, commitlog.Message):
            raise SystemExit("the benchmark's own log is wrong")
        str(record.born_host), str(record.store_host), properties.decode(record.properties)
        at += record.size
