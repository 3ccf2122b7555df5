from __future__ import annotations

import struct

import pytest

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import BatchItem, decode_items, encode_items
from tests import truth

# size, magic, CRC, flag, body length, body, properties length, properties: specification, section 1.7
WIRE = (
    bytes.fromhex("0000001f 00000000 00000000 00000007 00000003") + b"abc" + bytes.fromhex("0006") + b"A\x01b\x02C\x01"
    + bytes.fromhex("00000016 00000000 00000000 ffffffff 00000000 0000")
)  # fmt: skip
ITEMS = [BatchItem(7, b"abc", b"A\x01b\x02C\x01"), BatchItem(-1, b"", b"")]


def test_the_wire_body_of_a_batch() -> None:
    assert decode_items(WIRE) == ITEMS
    assert encode_items(ITEMS) == WIRE
    assert decode_items(b"") == []


def test_a_batch_that_is_cut_off() -> None:
    for size in (size for size in range(1, len(WIRE)) if size != 31):
        with pytest.raises(CorruptRecord) as caught:
            decode_items(WIRE[:size])
        assert caught.value.offset == (0 if size < 31 else 31), size
        assert caught.value.hint is not None, size


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (0, 30, "not the sum of its parts"),
        (0, 32, "not the sum of its parts"),
        (0, -1, "not the sum of its parts"),
        (16, -1, "body does not fit"),
        (16, 2**31 - 1, "body does not fit"),
        (16, 4, "not the sum of its parts"),
    ],
)
def test_wrong_lengths(at: int, value: int, problem: str) -> None:
    with pytest.raises(CorruptRecord, match=problem):
        decode_items(WIRE[:at] + struct.pack(">i", value) + WIRE[at + 4 :])


def test_the_inner_batches_of_a_broker(fixture_550: truth.Fixture) -> None:
    inner = [row for row in fixture_550.rows if row.get("sys_flag", 0) & 0x80]
    assert len(inner) == 4
    for row in inner:
        record = commitlog.decode(fixture_550.log, row["physical_offset"], Offset(row["physical_offset"]))
        assert isinstance(record, commitlog.Message)
        assert len(decode_items(record.body)) == int(row["properties"]["INNER_NUM"])
        assert encode_items(decode_items(record.body)) == record.body
