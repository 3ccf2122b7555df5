"""The handshake against a slave that takes one offset after the other; the proof against a model that counts them."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sinks.batch.coverage import Covered, check_offsets, check_records, clip, new_part, one_batch, prove
from sources.errors import CoverageError, Gap
from sources.offsets import Offset, OffsetRange
from tests.spans import span

few = st.integers(min_value=0, max_value=12)
spans = st.tuples(few, few).map(lambda ends: span(min(ends), max(ends)))


def test_a_gap_says_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(Gap) as caught:
        new_part(span(101, 200), Offset(100))
    said = caught.value.offset, caught.value.expected, caught.value.found
    assert said == (100, "a batch that starts at or below 100", "one that starts at 101, 1 further")
    assert "Start the job again" in (caught.value.hint or "")


@given(st.none() | few.map(Offset), spans)
def test_like_a_slave_that_takes_one_offset_after_the_other(position: Offset | None, batch: OffsetRange) -> None:
    """The first batch begins anywhere."""
    new = [offset for offset in range(batch.start, batch.end) if offset >= (position or 0)]
    if new and position is not None and new[0] != position:
        with pytest.raises(Gap):
            new_part(batch, position)
    else:
        found = new_part(batch, position)
        assert list(range(found.start, found.end)) == new


@given(spans, spans)
@example(span(30, 40), span(10, 20))
@example(span(10, 20), span(30, 40))
def test_clip_keeps_what_both_hold(split: OffsetRange, wanted: OffsetRange) -> None:
    kept = clip(split, wanted)
    assert wanted.holds(kept)
    assert set(range(kept.start, kept.end)) == set(range(split.start, split.end)) & set(range(wanted.start, wanted.end))


def piece(start: int, end: int, last: int) -> Covered:
    return Covered(span(start, end), Offset(last))


@pytest.mark.parametrize(
    ("pieces", "problem", "offset"),
    [
        ([], "the tasks stopped short of the batch's end", 10),
        ([piece(10, 40, 30)], "the tasks stopped short of the batch's end", 40),
        ([piece(11, 50, 30)], "a hole of 1 between what the tasks read", 10),
        ([piece(9, 50, 30)], "the tasks read a range twice", 9),
        ([piece(10, 20, 10), piece(25, 50, 30)], "a hole of 5 between what the tasks read", 20),
        ([piece(10, 20, 10), piece(15, 50, 30)], "the tasks read a range twice", 15),
        ([piece(10, 50, 30), piece(10, 50, 30)], "the tasks read a range twice", 10),
        ([piece(10, 60, 50)], "the tasks read records that the batch does not own", 50),
        ([piece(10, 50, 40), piece(50, 60, 55)], "the tasks read records that the batch does not own", 50),
        ([piece(10, 50, 50)], "a task reported a last record outside what it covered", 10),
    ],
)
def test_what_does_not_cover(pieces: list[Covered], problem: str, offset: int) -> None:
    with pytest.raises(CoverageError) as caught:
        prove(span(10, 50), pieces)
    assert (caught.value.problem, caught.value.offset) == (problem, offset)
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.hint


sizes = st.lists(st.integers(min_value=1, max_value=6), min_size=1, max_size=12)


@given(sizes, st.data())
def test_an_honest_read_in_any_splits_covers(record_sizes: list[int], data: st.DataObject) -> None:
    """Records of any sizes, splits of any size (smaller than a record too): each split reports what starts in it."""
    starts = [sum(record_sizes[:number]) for number in range(len(record_sizes) + 1)]
    end = data.draw(st.integers(min_value=1, max_value=starts[-1]))
    split = data.draw(st.integers(min_value=1, max_value=8))
    pieces = []
    for owned in span(0, end).in_pieces(split):
        mine = [number for number, start in enumerate(starts[:-1]) if start in owned]
        if mine:
            pieces.append(piece(starts[mine[0]], starts[mine[-1] + 1], starts[mine[-1]]))
    covered = prove(span(0, end), data.draw(st.permutations(pieces)))
    assert covered == span(0, min(start for start in starts if start >= end))


pieces_of_anything = st.tuples(
    st.integers(min_value=0, max_value=8), st.integers(min_value=1, max_value=8), st.integers(min_value=0, max_value=7)
).map(lambda drawn: piece(drawn[0], drawn[0] + drawn[1], drawn[0] + drawn[2]))


@given(st.lists(pieces_of_anything, max_size=4), st.integers(min_value=0, max_value=4), st.integers(5, 12))
def test_like_counting_every_offset(pieces: list[Covered], start: int, end: int) -> None:
    counted: list[int] = sorted(at for one in pieces for at in range(one.range.start, one.range.end))
    reached = counted[-1] + 1 if counted else start
    honest = (
        counted == list(range(start, reached))
        and reached >= end
        and all(one.last_record_start in one.range and one.last_record_start < end for one in pieces)
    )
    if honest:
        assert prove(span(start, end), pieces) == span(start, reached)
    else:
        with pytest.raises(CoverageError):
            prove(span(start, end), pieces)


def test_splits_of_one_batch() -> None:
    assert one_batch([span(0, 5), span(0, 5)]) == span(0, 5)
    with pytest.raises(CoverageError, match=r"found \[0, 5\), \[0, 7\)") as caught:
        one_batch([span(0, 7), span(0, 5)])
    assert caught.value.expected
    assert caught.value.hint
    with pytest.raises(CoverageError, match="found none"):
        one_batch([])


def rows(*records: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([at for at, _ in records], pa.int64()), pa.array([size for _, size in records], pa.int32())],
        ["offset", "size"],
    )


def test_rows_that_fill_their_range_and_rows_that_lie_in_it() -> None:
    check_records(rows((10, 5), (15, 1), (16, 4)), span(10, 20))
    check_records(rows(), span(10, 10))
    for offsets in ((), (10,), (19,), (10, 11, 19), range(10, 20)):
        check_offsets(rows(*((at, 1) for at in offsets)), span(10, 20))
    check_offsets(rows(), span(10, 10))


@pytest.mark.parametrize(
    ("records", "offset", "found"),
    [
        (rows((10, 5), (16, 4)), 15, 16),
        (rows((10, 5), (14, 6)), 15, 14),
        (rows((11, 9)), 10, 11),
        (rows((10, 9)), 19, 20),
        (rows((10, 11)), 21, 20),
        (rows(), 10, 20),
        (rows((10, 5), (16, 1), (18, 2)), 15, 16),  # of two holes, the first
    ],
)
def test_rows_that_do_not(records: pa.RecordBatch, offset: int, found: int) -> None:
    with pytest.raises(CoverageError) as caught:
        check_records(records, span(10, 20))
    assert (caught.value.offset, caught.value.found) == (offset, f"one at {found}")
    assert caught.value.expected


@pytest.mark.parametrize(
    ("offsets", "offset", "expected"),
    [
        ((9,), 9, "one in [10, 20)"),
        ((10, 20), 20, "one in [11, 20)"),
        ((10, 12, 12), 12, "one in [13, 20)"),
        ((15, 12), 12, "one in [16, 20)"),
        ((9, 20), 9, "one in [10, 20)"),  # of two, the first
    ],
)
def test_rows_that_do_not_lie_in_their_range(offsets: tuple[int, ...], offset: int, expected: str) -> None:
    with pytest.raises(CoverageError) as caught:
        check_offsets(rows(*((at, 1) for at in offsets)), span(10, 20))
    assert (caught.value.offset, caught.value.expected, caught.value.found) == (offset, expected, str(offset))

    with pytest.raises(CoverageError):
        check_offsets(rows((10, 1)), span(10, 10))
