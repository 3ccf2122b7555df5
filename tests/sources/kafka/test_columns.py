from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.kafka.format.columns import canonical, canonical_lengths, located
from sources.kafka.format.record_columns import texts
from sources.records import KAFKA_SCHEMA
from tests.sources.kafka.batches import LOG_APPEND_TIME, Row, Sent, Written, decoded, log_of, logs, rows_of, written


def records_of(batches: list[Written]) -> pa.RecordBatch:
    return decoded(log_of(batches)).records


def test_every_column_has_a_comment() -> None:
    assert all(field.metadata[b"comment"] for field in KAFKA_SCHEMA)
    assert KAFKA_SCHEMA.names == [
        "offset", "leader_epoch", "topic", "partition", "timestamp", "timestamp_type", "key", "value", "headers",
    ]  # fmt: skip


def test_records_with_their_place() -> None:
    records = located(records_of([written(5, b"a", b"b")]), "orders", 3)
    assert records.schema.equals(KAFKA_SCHEMA, check_metadata=True)
    assert [(row["topic"], row["partition"], row["value"]) for row in records.to_pylist()] == [
        ("orders", 3, b"a"),
        ("orders", 3, b"b"),
    ]
    assert located(records_of([]), "orders", 3).schema.equals(KAFKA_SCHEMA)


def test_the_canonical_bytes_written_by_hand() -> None:
    headers = (("h", b"xy"), ("", None))
    batch = Written(258, (Sent(0, b"k", None, headers, 5), Sent(1, None, b"", (), -1)), epoch=7)
    assert canonical(records_of([batch])) == bytes.fromhex(
        "0000000000000102" "00000007" "0000000000000005" "00" "00000001" "ffffffff" "00000013"
        "6b" "" "00000001" "00000002" "68" "7879" "00000000" "ffffffff"
        "0000000000000103" "00000007" "ffffffffffffffff" "00" "ffffffff" "00000000" "00000000"
    )  # fmt: skip
    late = Written(0, (Sent(0, None, None, (), 5),), epoch=-1, attributes=LOG_APPEND_TIME)
    assert canonical(records_of([late])) == bytes.fromhex(
        "0000000000000000" "ffffffff" "0000000000000005" "01" "ffffffff" "ffffffff" "00000000"
    )  # fmt: skip


def plain_record(row: Row) -> bytes:
    """The same of one record, one field after the other."""
    headers = b"".join(
        struct.pack(">ii", len(key.encode()), length(value)) + key.encode() + (value or b"")
        for key, value in row["headers"]
    )
    return struct.pack(
        ">qiqbiii", row["offset"], or_minus_1(row["leader_epoch"]), or_minus_1(row["timestamp"]),
        row["timestamp_type"] == "log_append_time", length(row["key"]), length(row["value"]), len(headers),
    ) + (row["key"] or b"") + (row["value"] or b"") + headers  # fmt: skip


def length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def or_minus_1(value: int | None) -> int:
    return -1 if value is None else value


@given(logs(), st.data())
def test_canonical_bytes_and_lengths_are_those_of_the_dumb_way(batches: list[Written], data: st.DataObject) -> None:
    records = records_of(batches)
    part = records.slice(data.draw(st.integers(0, len(records))))  # of arrays that do not begin where their buffers do
    rows = rows_of(part)
    assert canonical(part) == canonical(located(part, "orders", 1)) == b"".join(map(plain_record, rows))
    apart = [len(plain_record(row)) for row in rows]
    assert canonical_lengths(part).tolist() == apart
    assert canonical_lengths(located(part, "orders", 1).select(["key", "value", "headers"])).tolist() == apart


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("47 72 c3 b6 c3 9f 65", "Größe"),
        ("f0 9f 98 80", "\U0001f600"),
        ("ff", "\ufffd"),
        ("41 80 42", "A\ufffdB"),
        ("c0 80", "\ufffd\ufffd"),  # what Java's own modified UTF-8 has for a zero
        ("e2 82", "\ufffd"),
        ("e2 82 41", "\ufffdA"),
        ("f0 9f 98 41", "\ufffdA"),
        ("f5 80 80 80", "\ufffd\ufffd\ufffd\ufffd"),
        ("ed a0 bd ed b8 80", "\ufffd\ufffd"),  # a surrogate pair, each half encoded by itself
        ("ed a0 41", "\ufffdA"),
        ("ed bf", "\ufffd"),
        ("f0 ed a0 41", "\ufffd\ufffdA"),
    ],
)  # fmt: skip
def test_header_keys_that_are_no_utf_8_are_replaced_as_java_does(key: str, text: str) -> None:
    """As OpenJDK 17 printed them: ``new String(bytes, UTF_8)``."""
    keys = pa.array([b"sound", bytes.fromhex(key.replace(" ", ""))])
    assert texts(keys).to_pylist() == ["sound", text]
