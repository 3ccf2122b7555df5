"""`commitlog.find_record`: the next record boundary from any byte on."""

from __future__ import annotations

import bisect
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.offsets import Offset
from sources.rocketmq import commitlog
from sources.rocketmq.commitlog import BLANK, Blank, Limits, find_record
from tests import truth
from tests.sources.rocketmq.records import Log, log_of, logs, message

WINDOW_BYTES = 600_000  # more than any record of the fixtures


def check_every(fixture: truth.Fixture, offsets: list[int]) -> None:
    boundaries = [row["physical_offset"] for row in fixture.rows]
    log = memoryview(fixture.log)
    for offset in offsets:
        after = bisect.bisect_left(boundaries, offset)
        expected = boundaries[after] if after < len(boundaries) else None
        assert find_record(log[offset : offset + WINDOW_BYTES], Offset(offset)) == expected, offset


def test_from_every_offset_at_the_start_of_a_brokers_log(fixture_log: truth.Fixture) -> None:
    check_every(fixture_log, list(range(4096)))


def test_from_every_offset_around_the_blank_at_a_files_end(fixture_log: truth.Fixture) -> None:
    for blank in (row for row in fixture_log.rows if row.get("blank")):
        start, end = blank["physical_offset"], blank["physical_offset"] + blank["size"]
        check_every(fixture_log, [*range(start - 700, start + 40), *range(end - 40, end + 700)])


def test_from_every_offset_at_the_end_of_a_brokers_log(fixture_log: truth.Fixture) -> None:
    check_every(fixture_log, list(range(fixture_log.max_offset - 1500, fixture_log.max_offset + 1)))


def test_from_offsets_anywhere_in_a_brokers_log(fixture_log: truth.Fixture) -> None:
    chosen = random.Random(1)
    check_every(fixture_log, [chosen.randrange(fixture_log.max_offset) for _ in range(2000)])


def test_a_blank_at_the_very_end_of_what_is_there(fixture_log: truth.Fixture) -> None:
    blank = next(row for row in fixture_log.rows if row.get("blank"))
    start, end = blank["physical_offset"], blank["physical_offset"] + blank["size"]
    assert find_record(fixture_log.log[start - 4 : end], Offset(start - 4)) == start
    assert find_record(fixture_log.log[start - 4 : end - 1], Offset(start - 4)) is None


def test_a_copied_record_in_a_body_is_no_record() -> None:
    copied = commitlog.encode(message(body=b"copied"))
    log = log_of([message(body=b"x"), message(body=copied + copied), message(body=b"y")])
    outer, after = log.records[1].offset, log.records[2].offset
    for offset in range(outer + 1, after + 1):
        assert find_record(log.stored[offset:], Offset(offset)) == after


def test_a_copied_blank_in_a_body_is_no_record() -> None:
    blank = commitlog.encode(Blank(Offset(0), 16, bytes(8)))
    copied = commitlog.encode(message(body=b"copied"))
    log = log_of([message(body=b"x"), message(body=blank + bytes(100) + blank + copied), message(body=b"y")])
    outer, after = log.records[1].offset, log.records[2].offset
    assert find_record(log.stored[outer + 1 :], Offset(outer + 1)) == after


def test_a_copied_blank_that_reaches_beyond_the_bytes_is_no_record() -> None:
    blank = struct.pack(">ii", 1_000_000, BLANK)
    log = log_of([message(body=blank), message(body=b"y")])
    assert find_record(log.stored[1:], Offset(1)) == log.records[1].offset


def test_a_record_in_its_place_is_checked_like_any_other() -> None:
    log = log_of([message(body=b"first"), message(body=b"second"), message(body=b"third")])
    stored = bytearray(log.stored)
    stored[stored.index(b"second")] ^= 1  # its CRC fails: this cannot be told from a forged record
    assert find_record(stored[1:], Offset(1)) == log.records[2].offset


def test_a_record_that_is_not_all_there_hides_what_comes_after_it() -> None:
    inner_at = 200
    first = message(body=b"", topic="")
    inner = commitlog.encode(message(offset=Offset(inner_at)))
    outer = message(body=bytes(inner_at - first.size - 88) + inner + bytes(50), topic="T")
    log = log_of([first, outer])
    assert log.stored[inner_at:].startswith(inner)  # a forger guessed the place
    assert find_record(log.stored[1:], Offset(1)) == first.size
    assert find_record(log.stored[1:-1], Offset(1)) is None


@pytest.mark.parametrize(
    "data", [b"", b"\xda\xa3\x20\xa7", bytes(3) + b"\xda\xa3\x20\xa7", bytes(1000), b"\xcb\xd4\x31\x94"]
)
def test_nothing_to_find(data: bytes) -> None:
    assert find_record(data, Offset(0)) is None


def test_a_record_above_the_limit_is_not_recognised() -> None:
    stored = commitlog.encode(message())
    assert find_record(stored, Offset(0), Limits(max_record_bytes=len(stored))) == 0
    assert find_record(stored, Offset(0), Limits(max_record_bytes=len(stored) - 1)) is None


@given(logs(), st.data())
def test_from_any_offset_of_any_log_without_blanks_inside_blanks(log: Log, data: st.DataObject) -> None:
    offset = data.draw(st.integers(log.start, log.end))
    expected = next((at for at in log.boundaries[:-1] if at >= offset), None)
    found = find_record(log.stored[offset - log.start :], Offset(offset))
    assert found is None or found in log.boundaries
    if found != expected:  # a blank is known by what follows it, and a blank may follow it here
        record = next(record for record in log.records if record.offset == expected)
        following = [after for after in log.records if after.offset == record.offset + record.size]
        assert isinstance(record, Blank)
        assert isinstance(following[0], Blank)
