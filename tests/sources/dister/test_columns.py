"""Entries as rows, and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sources.dister.files.layout import BatchFile, batch_number
from sources.dister.format import columns
from sources.dister.format.entries import decode_line
from sources.dister.format.line_walk import Line, Sound
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import RECORD_SCHEMA

LINES = [
    b'10007,300,{"b":"\\u003cx\\u003e","a":"\xc3\xa9"}',
    b'20001,310,["a","none"]',
    b"1000020001,999,[1]",
    b'001000030001,300, {"a":"3"} ',
    b"1000040001,300,{}",
]


def group(lines: list[bytes]) -> list[Sound]:
    end, found = Offset(0), []
    for text in lines:
        entry = decode_line(text)
        batch = BatchFile(batch_number(entry.id), Path("/l"))
        found.append(Sound(end, entry, Line(batch, 0, text, is_whole=True)))
        end = Offset(entry.id + 1)
    return found


def test_what_the_columns_of_an_entry_say() -> None:
    records = columns.encode(group(LINES))

    assert records.schema == RECORD_SCHEMA
    told = records.select(
        ["offset", "size", "kind", "topic", "queue_id", "queue_offset", "keys", "body", "flag", "stored_properties"]
    )
    assert [tuple(row.values()) for row in told.to_pylist()] == [
        (0, 10008, "message", "set", 0, 10007, ["b", "a"], LINES[0][10:], 300, None),
        (10008, 9994, "message", "remove", 0, 20001, ["a", "none"], b'["a","none"]', 310, None),
        (20002, 1_000_000_000, "message", "act 999", 1, 1_000_020_001, None, b"[1]", 999, None),
        (1_000_020_002, 10_000, "message", "set", 1, 1_000_030_001, ["a"], b' {"a":"3"} ', 300, b"001000030001,300,"),
        (1_000_030_002, 10_000, "message", "set", 1, 1_000_040_001, [], b"{}", 300, None),
    ]
    others = [name for name in RECORD_SCHEMA.names if name not in told.schema.names]
    assert all(records.column(name).null_count == len(LINES) for name in others)


@pytest.mark.parametrize("name", ["size", "flag", "body"])
def test_a_row_that_lacks_something_is_corrupt(name: str) -> None:
    rows = columns.encode(group(LINES)).to_pylist()
    rows[1][name] = None
    records = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
    with pytest.raises(CorruptRecord, match="lacks a value that its line needs") as raised:
        columns.restore(records)
    assert raised.value.offset == 10008
    assert columns.lengths(records).tolist() == [0 if at == 1 else len(line) + 1 for at, line in enumerate(LINES)]
