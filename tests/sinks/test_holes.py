"""Which offsets are missing: every operation beside the same on sets of offsets."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sinks.state.holes import Holes, joined
from sinks.values.ledger_row import BACKFILL, LedgerRow
from sources.offsets import Offset, OffsetRange
from tests.sinks.accounts import ledger_row
from tests.spans import span

ENDS = st.integers(0, 60)


RANGES = st.tuples(ENDS, ENDS).map(lambda ends: span(min(ends), max(ends)))
HOLES = st.lists(RANGES, max_size=6).map(lambda ranges: Holes(ranges=joined(ranges), fills=3, commit="c"))


def row(start: int, end: int) -> LedgerRow:
    return ledger_row(start, end, last_store_timestamp=7, committed_at=9, origin=BACKFILL)


def offsets(*ranges: OffsetRange) -> set[int]:
    return {at for one in ranges for at in range(one.start, one.end)}


def assert_in_order(holes: Holes) -> None:
    assert not any(hole.is_empty for hole in holes.ranges)
    assert all(one.end < other.start for one, other in pairwise(holes.ranges))


@given(st.lists(RANGES, max_size=8))
def test_joined_is_the_same_offsets_in_as_few_ranges_as_can_be(ranges: list[OffsetRange]) -> None:
    found = joined(ranges)
    assert offsets(*found) == offsets(*ranges)
    assert_in_order(Holes(ranges=found))


@given(HOLES, st.lists(RANGES, max_size=3))
def test_what_is_lost_is_missing(holes: Holes, lost: list[OffsetRange]) -> None:
    after = holes.with_lost(lost)
    assert offsets(*after.ranges) == offsets(*holes.ranges) | offsets(*lost)
    assert_in_order(after)
    assert (after.fills, after.ledger) == (holes.fills, holes.ledger)
    assert after.commit != holes.commit


@given(HOLES, st.lists(RANGES, max_size=3))
def test_what_retention_deleted_is_at_the_front_and_was_not_taken_out(holes: Holes, out: list[OffsetRange]) -> None:
    after = holes.with_taken_out(out)
    assert offsets(*after.forgotten) == offsets(span(0, after.front)) - offsets(*after.taken_out)


@given(HOLES, RANGES)
def test_what_is_filled_is_there(holes: Holes, filled: OffsetRange) -> None:
    assume(not filled.is_empty)
    if not offsets(filled) <= offsets(*holes.ranges):
        with pytest.raises(ValueError, match="none of the holes"):
            holes.filled([filled], [])
        return
    after = holes.filled([filled], [row(filled.start, filled.end)])
    assert offsets(*after.ranges) == offsets(*holes.ranges) - offsets(filled)
    assert_in_order(after)
    assert (after.fills, after.ledger) == (4, (row(filled.start, filled.end),))
    assert after.commit != holes.commit


def test_several_parts_of_one_hole_are_filled_at_once() -> None:
    after = Holes(ranges=(span(0, 100),)).filled([span(0, 10), span(20, 30), span(90, 100)], [])
    assert after.ranges == (span(10, 20), span(30, 90))
    with pytest.raises(ValueError, match=r"\[25, 40\) lies in none"):
        after.filled([span(25, 40)], [])


@given(HOLES, ENDS)
def test_nothing_is_missing_above_a_position_that_was_gone_back_to(holes: Holes, position: int) -> None:
    after = holes.below(Offset(position))
    assert offsets(*after.ranges) == {at for at in offsets(*holes.ranges) if at < position}
    assert_in_order(after)


def test_rows_that_the_newest_fill_owes_go_with_what_a_repair_takes_out() -> None:
    holes = Holes(ranges=(span(0, 100),)).filled([span(0, 10), span(20, 30)], [row(0, 10), row(20, 30)])
    assert holes.below(Offset(30)).ledger == (row(0, 10), row(20, 30))
    assert holes.below(Offset(29)).ledger == (row(0, 10),)


@given(HOLES, st.lists(RANGES, max_size=3), RANGES)
def test_taken_out_ranges_end_when_filled_or_gone_back_over(
    holes: Holes, out: list[OffsetRange], other: OffsetRange
) -> None:
    after = holes.with_taken_out(out)
    assert offsets(*after.ranges) == offsets(*holes.ranges) | offsets(*out)
    assert offsets(*after.taken_out) == offsets(*out)
    assert after.commit != holes.commit
    assert after.with_lost([other]).taken_out == after.taken_out
    assert offsets(*after.with_taken_out([other]).taken_out) == offsets(*out, other)
    assert offsets(*after.below(other.end).taken_out) == {at for at in offsets(*out) if at < other.end}
    if offsets(other) <= offsets(*after.ranges) and not other.is_empty:
        assert offsets(*after.filled([other], []).taken_out) == offsets(*out) - offsets(other)


def test_each_commit_has_an_id_of_its_own() -> None:
    holes = Holes.before(Offset(100))
    after = holes.with_lost([span(200, 300)])
    others = [
        holes.with_lost([span(200, 300)]),
        after.filled([span(0, 10)], []),
        after.with_taken_out([span(400, 500)]),
    ]
    assert len({one.commit for one in (after, *others)}) == 4
    assert all(one.commit for one in (after, *others))


@given(HOLES, RANGES)
def test_the_part_within_a_range(holes: Holes, wanted: OffsetRange) -> None:
    found = holes.within(wanted)
    assert offsets(*found) == offsets(*holes.ranges) & offsets(wanted)
    assert not any(part.is_empty for part in found)
    assume(not wanted.is_empty)
    assert holes.hold(wanted) == (offsets(wanted) <= offsets(*holes.ranges))


@pytest.mark.parametrize(("first", "ranges"), [(0, ()), (70, (span(0, 70),))])
def test_before_the_beginning(first: int, ranges: tuple[OffsetRange, ...]) -> None:
    holes = Holes.before(Offset(first))
    assert (holes.ranges, holes.front) == (ranges, first)
    assert holes.with_lost([span(80, 90)]).front == first


@given(HOLES)
def test_holes_survive_their_json(holes: Holes) -> None:
    assert Holes.from_json(holes.as_json()) == holes
    owing = Holes(ranges=holes.ranges, fills=1, commit="d", ledger=(row(3, 5), row(5, 7)))
    assert Holes.from_json(owing.as_json()) == owing
    repaired = holes.with_taken_out([span(7, 9), span(50, 55)])
    assert Holes.from_json(repaired.as_json()) == repaired


def test_holes_of_a_version_that_took_nothing_out_are_read() -> None:
    found = Holes.from_json('{"ranges": [[0, 70], [80, 90]], "fills": 2, "commit": "c", "ledger": []}')
    assert found == Holes(ranges=(span(0, 70), span(80, 90)), fills=2, commit="c")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranges": [[5, 3]], "fills": 0, "commit": "", "ledger": []}'])
def test_what_is_no_holes_is_refused(text: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Holes.from_json(text)
