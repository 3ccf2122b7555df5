"""Which rows of the ledger become one: for random ledgers, what is covered stays, and nobody's bounds go."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.books.ledger import above, bounds_in, text_of, with_kept
from sinks.upkeep import ledger_plan
from sinks.upkeep.ledger_plan import HOUR_US, PLANNED_BY, groups
from sinks.upkeep.ledger_task import joined_row
from sinks.values.ledger_row import LedgerRow
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.accounts import ledger_row
from tests.spans import span

MOST = 100
JOINED = "sha256:11"
"""The checksum of rows that were joined."""
Ledger = list[tuple[int, LedgerRow]]
"""Rows with their epochs, by start."""


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_plan, "JOINED_BYTES", MOST)
        yield


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """Of rows that mostly follow each other; some leave a gap, overlap, or are of a later hour or epoch."""
    found, at, epoch, committed_us = list[tuple[int, LedgerRow]](), 0, 0, 0
    for size in draw(st.lists(st.integers(1, 60), max_size=30)):
        at = max(0, at + draw(st.sampled_from([0] * 9 + [7, -5])))
        epoch += draw(st.sampled_from([0] * 9 + [1]))
        committed_us += draw(st.sampled_from([1, HOUR_US // 9]))
        found.append((epoch, ledger_row(at, at + size, committed_at=committed_us)))
        at += size
    return sorted(found, key=lambda one: one[1].range)


def planned(ledger: Ledger, barred: list[OffsetRange], bounds: set[Offset]) -> list[slice]:
    values = [[epoch, row.start, row.end, row.bytes, row.committed_at] for epoch, row in ledger]
    columns = zip(*values, strict=True) if values else [[]] * len(PLANNED_BY)
    table = pa.table([pa.array(column, pa.int64()) for column in columns], names=list(PLANNED_BY))
    return list(groups(table, barred, bounds))


def with_joined(ledger: Ledger, places: list[slice]) -> Ledger:
    firsts = {place.start: place for place in places}
    gone = {at for place in places for at in range(place.start, place.stop)}
    return [
        (one[0], joined_row([row for _, row in ledger[firsts[at]]], JOINED)) if at in firsts else one
        for at, one in enumerate(ledger)
        if at in firsts or at not in gone
    ]


def covered(ledger: Ledger) -> list[tuple[int, int]]:
    return sorted((epoch, at) for epoch, row in ledger for at in range(row.start, row.end))


@given(ledgers(), st.lists(st.tuples(st.integers(0, 900), st.integers(1, 50))), st.sets(st.integers(0, 900)), st.data())
def test_the_cover_stays_and_no_bound_goes(
    ledger: Ledger, barred: list[tuple[int, int]], bounds: set[Offset], data: st.DataObject
) -> None:
    """Whatever part of it a kill lets happen: the next run ends where one run does, and a third changes nothing."""
    out = [span(start, start + size) for start, size in barred]
    places = planned(ledger, out, bounds)
    after = with_joined(ledger, places)
    assert covered(after) == covered(ledger)
    joined = [row for _, row in after if row.checksum == JOINED]
    for place, row in zip(places, joined, strict=True):
        assert row.bytes <= MOST
        assert not any(row.range.overlaps(one) for one in out)
        sources = ledger[place]
        assert (row.start, row.end) == (sources[0][1].start, sources[-1][1].end)
        assert not any(each.start in bounds for _, each in sources[1:])
        assert len({(epoch, each.committed_at // HOUR_US) for epoch, each in sources}) == 1
        assert (row.records, row.committed_at) == (len(sources), sources[-1][1].committed_at)
    some = data.draw(st.lists(st.sampled_from(places), unique_by=lambda one: one.start)) if places else []
    killed = with_joined(ledger, some)
    assert with_joined(killed, planned(killed, out, bounds)) == after
    assert planned(after, out, bounds) == []


def test_as_many_rows_as_fit_become_one() -> None:
    ledger = [(0, ledger_row(at, at + 40)) for at in range(0, 200, 40)]
    assert planned(ledger, [], set()) == [slice(0, 2), slice(2, 4)]
    large = [(0, replace(row, bytes=MOST)) for _, row in ledger]
    assert planned(large, [], set()) == []


def test_bounds_are_kept_as_text_until_the_log_begins_behind_them() -> None:
    log, other = LogId("rocketmq", "test"), LogId("rocketmq", "other")
    kept = with_kept(with_kept(bounds_in(None), log, [Offset(30), Offset(10)]), other, [Offset(5)])
    assert bounds_in(text_of(kept)) == kept
    assert above(kept, {str(log): Offset(10)}) == with_kept({str(other): frozenset({Offset(5)})}, log, [Offset(30)])
    with pytest.raises(ValueError, match="no map of lists"):
        bounds_in("[1]")
