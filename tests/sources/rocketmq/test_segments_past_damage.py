"""Where a log in files begins, ends and may be cut, when damage and missing files are no end of it."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.errors import AboveMaximum, BelowMinimum, MissingSegment, SegmentError
from sources.master import Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files.segments import Segments
from sources.rocketmq.format.layout import Limits
from tests.sampling import some_of
from tests.sources.rocketmq.damaged_logs import Reading, assert_covers, damage, offsets
from tests.sources.rocketmq.log_reading import owned
from tests.sources.rocketmq.synthetic_log import SyntheticLog, filled

FILE_BYTES = 4096


def files(log: SyntheticLog) -> Segments:
    return Reading().files(log)


def strict(log: SyntheticLog) -> Segments:
    return Reading(past_damage=False).files(log)


@pytest.fixture
def log(tmp_path: Path) -> SyntheticLog:
    """Of six files, the last one allocated ahead; without the third."""
    log = filled(tmp_path, *[900] * 18)
    assert log.end > 4 * FILE_BYTES
    log.file(2 * FILE_BYTES).unlink()
    return log


HOLE = (2 * FILE_BYTES, 3 * FILE_BYTES)


def test_a_missing_file_is_damage_without_bytes(log: SyntheticLog) -> None:
    pieces = Reading().by_path(log, 0, log.end)
    assert damage(pieces) == [HOLE]
    assert offsets(pieces) == [start for start in log.starts if not HOLE[0] <= start < HOLE[1]]
    (missing,) = [piece for piece in pieces if isinstance(piece, Damage)]
    assert missing.raw is None
    assert isinstance(missing.error, MissingSegment)
    assert missing.error.offset == HOLE[0]
    assert f"{FILE_BYTES:020d}" in str(missing.error.expected)
    assert f"{HOLE[1]:020d}" in str(missing.error.found)


def test_a_missing_file_holds_back_nothing_before_it(log: SyntheticLog) -> None:
    assert strict(log).bounds() == files(log).bounds()
    assert list(strict(log).pieces(owned(0, log.end), 1000)) == list(files(log).pieces(owned(0, log.end), 1000))
    covered = [chunk.covered for chunk in strict(log).chunks(owned(0, HOLE[0]), True, 1000)]
    assert (covered[0].start, covered[-1].end) == (0, HOLE[0])


@pytest.mark.parametrize("size", [100, 1500, FILE_BYTES, 10_000])
def test_cuts_leave_a_missing_file_whole(log: SyntheticLog, size: int) -> None:
    cuts = list(files(log).pieces(owned(0, log.end), size))
    assert [cut.end for cut in cuts[:-1]] == [cut.start for cut in cuts[1:]]
    assert (cuts[0].start, cuts[-1].end) == (0, log.end)
    assert {cut.start for cut in cuts} <= set(log.starts)
    pieces = [piece for cut in cuts for piece in Reading().by_path(log, cut.start, cut.end)]
    assert damage(pieces) == [HOLE]
    assert files(log).boundary_after(Offset(HOLE[0] + 5), Offset(log.end)) == HOLE[1]


def test_a_range_may_begin_and_end_in_a_missing_file(log: SyntheticLog) -> None:
    start, middle, end = HOLE[0] + 100, HOLE[0] + 2000, HOLE[1] + 1
    assert [piece.covered for piece in Reading().by_path(log, start, middle)] == [owned(start, middle)]
    pieces = Reading().by_path(log, middle, end)
    assert damage(pieces) == [(middle, HOLE[1])]
    assert offsets(pieces) == [HOLE[1]]


def test_several_missing_files_are_one_hole(tmp_path: Path) -> None:
    log = filled(tmp_path, *[900] * 22)
    for number in (1, 2, 4):
        log.file(number * FILE_BYTES).unlink()
    assert files(log).bounds().end == log.end
    pieces = Reading().by_path(log, 0, log.end)
    assert [piece.covered for piece in pieces if isinstance(piece, Damage)] == [
        owned(FILE_BYTES, 3 * FILE_BYTES),
        owned(4 * FILE_BYTES, 5 * FILE_BYTES),
    ]
    assert pieces[-1].covered.end == log.end


def test_files_that_overlap_are_an_error_in_either_mode(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    log.file(50).write_bytes(bytes(FILE_BYTES))
    for source in (files(log), strict(log)):
        with pytest.raises(SegmentError) as raised:
            source.bounds()
        assert not isinstance(raised.value, MissingSegment)


def spoiled(tmp_path: Path, *records: int, data: bytes = b"\xff" * 8) -> SyntheticLog:
    """A log of which these records begin with `data`, as far as their file reaches."""
    log = filled(tmp_path, *[300] * 30)
    for record in records:
        start = log.starts[record]
        log.write(start, data[: FILE_BYTES - start % FILE_BYTES])
    return log


@pytest.mark.parametrize("data", [b"\xff" * 8, bytes(8), bytes(300)], ids=["garbage", "a zero head", "zeros"])
@pytest.mark.parametrize("record", [1, 9, 10, 11, 20])
def test_the_log_goes_on_behind_damage_in_an_older_file(tmp_path: Path, record: int, data: bytes) -> None:
    log = spoiled(tmp_path, record, data=data)
    for source in (files(log), strict(log)):
        for known in (None, Offset(0), Offset(log.starts[record]), Offset(log.starts[5])):
            assert source.bounds(known) == owned(0, log.end)


def test_what_a_later_file_proves_to_be_inside_the_log_is_damage(tmp_path: Path) -> None:
    log = spoiled(tmp_path, 3, -2)
    last, behind = log.starts[-2], log.starts[-1]
    assert files(log).bounds() == owned(0, last)
    assert files(log).bounds(Offset(last)) == owned(0, last)
    log.append_blank()
    log.append(b"in the next file")
    assert files(log).bounds(Offset(last)) == owned(0, log.end)
    assert_covers(Reading().by_path(log, last, log.end), log, last, log.end)
    assert damage(Reading().by_path(log, last, log.end)) == [(last, behind)]


@pytest.mark.parametrize("past_damage", [True, False])
@pytest.mark.parametrize("flipped", [0, 3, 4, 35, 86, 200], ids=lambda at: f"byte {at}")
def test_no_cut_is_at_a_damaged_record_nor_where_it_leads(tmp_path: Path, flipped: int, past_damage: bool) -> None:
    log = filled(tmp_path, *[300] * 8)
    start = log.starts[4]
    log.write(start + flipped, bytes([log.data()[start + flipped] ^ 0x02]))
    for limits in (Limits(), Limits(max_record_bytes=500)):
        source = Segments(tmp_path, limits, past_damage=past_damage)
        for offset in some_of(range(log.starts[3] + 1, log.starts[6]), (*log.starts, start + flipped)):
            expected = min(at for at in log.starts if at >= offset and at != start)
            assert source.boundary_after(Offset(offset), Offset(log.end)) == expected


def joined(pieces: Iterator[memoryview], size: int) -> bytes:
    found = [bytes(piece) for piece in pieces]
    assert all(0 < len(piece) <= size for piece in found)
    return b"".join(found)


def test_raw_bytes_at_any_edges_are_the_files_bytes(tmp_path: Path) -> None:
    log = spoiled(tmp_path, 3, 17, data=bytes(100))
    edges = [0, 1, log.starts[3] + 5, FILE_BYTES - 1, FILE_BYTES, FILE_BYTES + 1, 2 * FILE_BYTES + 77, log.end]
    for source in (files(log), strict(log)):
        for start, end in itertools.combinations_with_replacement(edges, 2):
            assert joined(source.raw(owned(start, end), 1000), 1000) == log.data()[start:end]


def test_raw_bytes_of_a_missing_file_are_missing_in_either_mode(log: SyntheticLog) -> None:
    for source in (files(log), strict(log)):
        with pytest.raises(MissingSegment) as raised:
            list(source.raw(owned(HOLE[0] - 10, HOLE[1] + 10), 1000))
        assert raised.value.offset == HOLE[0]
    assert len(joined(files(log).raw(owned(0, HOLE[0]), 1000), 1000)) == HOLE[0]
    assert len(joined(files(log).raw(owned(HOLE[1], log.end), 1000), 1000)) == log.end - HOLE[1]


@pytest.mark.parametrize(
    ("wanted", "kind"), [(owned(0, 5000), BelowMinimum), (owned(9000, 1 << 40), AboveMaximum)], ids=["below", "above"]
)
def test_raw_bytes_that_are_not_held(tmp_path: Path, wanted: OffsetRange, kind: type[Exception]) -> None:
    log = filled(tmp_path, *[900] * 12)
    log.file(0).unlink()
    with pytest.raises(kind):
        list(files(log).raw(wanted, 1000))
