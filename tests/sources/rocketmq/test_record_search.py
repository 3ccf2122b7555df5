"""`record_search`: the next sound record from any byte on."""

import bisect
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.offsets import Offset
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import Blank
from sources.rocketmq.format.layout import DEFAULT_LIMITS, Files, Limits
from sources.rocketmq.format.record_search import Found, find_record, stretch
from tests import truth
from tests.sampling import some_of
from tests.sources.rocketmq.records import Log, log_of, logs, message

WINDOW_BYTES = 600_000  # more than any record of the fixtures


def search(buffer: bytes | bytearray | memoryview, start: int, limits: Limits = DEFAULT_LIMITS) -> int | None:
    """The first record of bytes that are all there is."""
    found = find_record(buffer, Offset(start), limits, is_end=True)
    assert found.is_final
    return found.offset if found.offset < start + len(buffer) else None


def check_every(fixture: truth.Fixture, offsets: list[int]) -> None:
    boundaries = [row["physical_offset"] for row in fixture.rows]
    log = memoryview(fixture.log)
    for offset in offsets:
        after = bisect.bisect_left(boundaries, offset)
        expected = boundaries[after] if after < len(boundaries) else None
        assert search(log[offset : offset + WINDOW_BYTES], offset) == expected, offset


def test_from_offsets_anywhere_and_from_every_one_around_the_blank_at_a_files_end(fixture_log: truth.Fixture) -> None:
    for blank in (row for row in fixture_log.rows if row.get("blank")):
        start, end = blank["physical_offset"], blank["physical_offset"] + blank["size"]
        check_every(
            fixture_log, some_of(range(start - 700, start + 40), [start]) + some_of(range(end - 40, end + 700), [end])
        )
    chosen = random.Random(1)
    check_every(fixture_log, [chosen.randrange(fixture_log.max_offset) for _ in range(300)])


def test_a_blank_at_the_very_end_of_what_is_there(fixture_log: truth.Fixture) -> None:
    blank = next(row for row in fixture_log.rows if row.get("blank"))
    start, end = blank["physical_offset"], blank["physical_offset"] + blank["size"]
    assert search(fixture_log.log[start - 4 : end], start - 4) == start
    assert search(fixture_log.log[start - 4 : end - 1], start - 4) is None


def test_a_copied_record_in_a_body_is_no_record() -> None:
    copied = commitlog.encode(message(body=b"copied"))
    log = log_of([message(body=b"x"), message(body=copied + copied), message(body=b"y")])
    outer, after = log.records[1].offset, log.records[2].offset
    for offset in range(outer + 1, after + 1):
        assert search(log.stored[offset:], offset) == after


def log_with_a_forgery() -> tuple[Log, int]:
    """Two records; the body of the second holds one in its very place, which a producer guessed. And that place."""
    inner_at = 200
    first = message(body=b"", topic="")
    inner = commitlog.encode(message(offset=Offset(inner_at)))
    outer = message(body=bytes(inner_at - first.size - 88) + inner + bytes(50), topic="T")
    log = log_of([first, outer])
    assert log.stored[inner_at:].startswith(inner)
    return log, inner_at


def test_an_incomplete_record_hides_what_follows_it() -> None:
    log, inner_at = log_with_a_forgery()
    outer = log.records[1].offset
    cut = log.stored[1:-1]
    assert find_record(log.stored[1:], Offset(1), is_end=False) == Found(outer, is_final=True)
    assert find_record(cut, Offset(1), is_end=False) == Found(outer, is_final=False)
    assert find_record(cut, Offset(1), is_end=True) == Found(Offset(inner_at), is_final=True)


@given(logs(), st.data())
def test_what_is_found_does_not_depend_on_how_much_is_looked_at(log: Log, data: st.DataObject) -> None:
    start = data.draw(st.integers(log.start, log.end))
    stored = bytearray(log.stored)
    for at in data.draw(st.lists(st.integers(0, max(len(stored) - 1, 0)), max_size=3)) if stored else ():
        stored[at] ^= 0x10
    rest = bytes(stored[start - log.start :])
    whole = find_record(rest, Offset(start), is_end=True)
    for size in range(len(rest) + 1):
        part = find_record(rest[:size], Offset(start), is_end=False)
        assert part.offset <= whole.offset
        assert part == whole or not part.is_final


@given(logs(), st.integers(1, 300), st.data())
def test_a_search_in_windows_finds_the_same(log: Log, window_bytes: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(log.start, log.end))
    stored = bytes(byte ^ (0x10 if 100 <= at < 300 else 0) for at, byte in enumerate(log.stored))

    def find(at: Offset, size: int) -> Found:
        end = min(at - log.start + window_bytes * size // 65536, len(stored))
        return find_record(stored[at - log.start : end], at, is_end=end == len(stored))

    pieces = list(stretch(find, Offset(start), search_from=Offset(start), stop=None, limits=Limits(1 << 26)))
    whole = find_record(stored[start - log.start :], Offset(start), is_end=True)
    assert [piece.end for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    assert (pieces[0].start, pieces[-1].end) == (start, whole.offset) if pieces else whole.offset == start


def test_where_files_end_is_known_a_blank_needs_no_record_behind_it_and_no_other_place_will_do() -> None:
    log = log_of([message(body=b"x"), Blank(Offset(0), 40, bytes(32)), message(body=b"y")])
    blank, behind = log.boundaries[1], log.boundaries[2]
    stored = log.stored[:behind] + bytes(100)
    at = Offset(1)
    assert find_record(stored[1:], at, Limits(files=Files(0, behind)), is_end=False) == Found(blank, is_final=True)
    assert search(stored[1:], 1) is None
    assert search(log.stored[1:], 1, Limits(files=Files(0, behind + 1))) == behind


@pytest.mark.parametrize(
    "data", [b"", b"\xda\xa3\x20\xa7", bytes(3) + b"\xda\xa3\x20\xa7", bytes(1000), b"\xcb\xd4\x31\x94"]
)
def test_nothing_to_find_nor_a_record_above_the_limit(data: bytes) -> None:
    assert search(data, 0) is None
    stored = commitlog.encode(message())
    assert search(stored, 0, Limits(max_record_bytes=len(stored))) == 0
    assert search(stored, 0, Limits(max_record_bytes=len(stored) - 1)) is None
