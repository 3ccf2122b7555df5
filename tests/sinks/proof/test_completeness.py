"""Complete from where to where: ledger, holes and position against a dumb account of every single offset."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.proof.completeness import COLUMNS, Accounts, Completeness, Reason, stretches
from sinks.state.holes import Holes, joined
from sinks.tables import LEDGER_SCHEMA
from sinks.values.incident import IncidentRow, State
from sources.errors import CoverageError
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.accounts import incident as found
from tests.spans import span

LOG = LogId("rocketmq", "broker-a")
SCHEMA = pa.schema([LEDGER_SCHEMA.field(name) for name in COLUMNS]).remove_metadata()


def row(start: int, end: int, first_us: int | None = None, last_us: int | None = None, *, deleted: bool = False) -> Any:
    return (start, end, first_us, last_us, 5 if deleted else None)


def ledger(*rows: Any) -> pa.Table:
    return pa.table([pa.array(list(values), pa.int64()) for values in zip(*rows, strict=True)] or [[]] * 5,
                    names=list(COLUMNS)).cast(SCHEMA)  # fmt: skip


def incident(start: int, end: int, state: State = State.OPEN, condition: Condition = Condition.GAP) -> IncidentRow:
    return IncidentRow(id=f"{start}-{end}", epoch=0, found=found(start, end, condition), state=state)


def account(
    *rows: Any,
    position: int,
    first: int = 0,
    holes: Sequence[OffsetRange] = (),
    incidents: Sequence[IncidentRow] = (),
    taken_out: Sequence[OffsetRange] = (),
) -> Completeness:
    return Completeness.of(
        Accounts(
            epoch=0,
            position=Offset(position),
            first=Offset(first),
            holes=Holes(ranges=tuple(holes), taken_out=tuple(taken_out)),
            ledger=ledger(*rows),
            incidents=incidents,
        )
    )


def reasons(found: Completeness) -> list[tuple[OffsetRange, Reason]]:
    return [(one.range, one.reason) for one in found.missing]


def test_a_log_that_is_whole_and_a_replica_of_nothing() -> None:
    found = account(row(0, 10, 100, 200), row(25, 40, 300, 390), row(10, 25, 210, 290), position=40)
    (whole,) = found.whole
    assert (whole.range, whole.first_us, whole.last_us) == (span(0, 40), 100, 390)
    assert (found.position, found.missing, found.overlaps, found.beyond) == (40, (), (), None)
    assert found.problem(LOG) is None
    found = account(position=0)
    assert (found.whole, found.missing, found.problem(LOG)) == ((), (), None)


def test_each_part_of_a_hole_has_its_reason_and_the_time_around_it() -> None:
    found = account(
        row(100, 200, 1000, 2000),
        row(300, 310, None, None),  # blanks alone: nobody knows when
        row(310, 400, 4000, 5000),
        row(600, 700, 9000, 9500),
        row(500, 600, 7000, 8000, deleted=True),
        position=700,
        first=100,
        holes=[span(0, 100), span(200, 300), span(400, 600)],
        incidents=[incident(200, 250), incident(250, 300, State.CLOSED), incident(400, 500)],
    )
    assert reasons(found) == [
        (span(0, 100), Reason.BEGINNING),
        (span(200, 250), Reason.INCIDENT),
        (span(250, 300), Reason.INCIDENT),
        (span(400, 500), Reason.INCIDENT),
        (span(500, 600), Reason.RETENTION),
    ]
    assert [(one.after_us, one.before_us) for one in found.missing] == [
        (None, 1000),
        (2000, 4000),
        (2000, 4000),
        (5000, 9000),
        (5000, 9000),
    ]
    assert [one.incident.id for one in found.missing if one.incident] == ["200-250", "250-300", "400-500"]
    assert found.times_around(span(200, 300)) == (2000, 4000)
    assert found.times_around(span(0, 100)) == (None, 1000)
    assert found.times_around(span(700, 800)) == (9500, None)
    assert found.problem(LOG) is None


@pytest.mark.parametrize(
    ("holes", "incidents"),
    [
        ([span(10, 20)], []),  # a hole without a reason
        ([], [incident(10, 20)]),  # an incident alone makes no hole
        ([span(10, 20)], [incident(10, 20, State.HEALED)]),  # said to be healed, and it is not
        ([], []),  # a row of the ledger was lost
    ],
)
def test_what_nobody_explains_is_a_problem(holes: list[OffsetRange], incidents: list[IncidentRow]) -> None:
    found = account(row(0, 10), row(20, 30), position=30, holes=holes, incidents=incidents)
    assert reasons(found) == [(span(10, 20), Reason.UNEXPLAINED)]
    problem = found.problem(LOG)
    assert isinstance(problem, CoverageError)
    assert (problem.log, problem.offset, problem.exit_code) == ("rocketmq/broker-a", 10, 5)
    assert "lacks [10, 20)" in str(problem)
    assert problem.expected is not None
    assert "every offset below 30" in problem.expected
    assert "logtwin verify" in (problem.hint or "")


def test_a_row_taken_out_by_a_repair_claims_nothing_and_may_have_been_deleted() -> None:
    rows, hole = [row(0, 10), row(10, 20), row(20, 30)], [span(10, 20)]
    damage = [incident(10, 20, condition=Condition.REPLICA_DAMAGED)]
    found = account(*rows, position=30, holes=hole, incidents=damage, taken_out=hole)
    assert [one.range for one in found.whole] == [span(0, 10), span(20, 30)]
    assert (reasons(found), found.overlaps) == ([(span(10, 20), Reason.INCIDENT)], ())
    assert found.problem(LOG) is None
    assert account(*rows, position=30, holes=hole, incidents=damage).overlaps == (span(10, 20),)
    found = account(row(0, 10), row(10, 20, deleted=True), position=20, holes=[span(10, 20)], taken_out=[span(10, 20)])
    assert reasons(found) == [(span(10, 20), Reason.RETENTION)]


@pytest.mark.parametrize(
    ("rows", "holes", "overlap"),
    [
        ([row(0, 20), row(15, 30)], [], span(15, 20)),
        ([row(0, 30), row(5, 10), row(10, 12)], [], span(5, 12)),
        ([row(0, 15), row(0, 15), row(15, 30)], [], span(0, 15)),
        ([row(0, 30)], [span(10, 20)], span(10, 20)),
    ],
)
def test_what_is_claimed_twice_is_a_problem(rows: list[Any], holes: list[OffsetRange], overlap: OffsetRange) -> None:
    found = account(*rows, position=30, holes=holes)
    assert found.overlaps == (overlap,)
    assert [one.range for one in found.whole] == [span(0, 30)]
    assert f"claims {overlap} twice" in str(found.problem(LOG))


def test_a_row_across_the_position_is_a_problem_one_above_is_not_and_the_first_problem_comes_first() -> None:
    assert account(row(0, 30), row(30, 50), position=30).problem(LOG) is None
    found = account(row(0, 20), row(20, 50), position=30)
    assert found.beyond == span(30, 50)
    assert "goes on to 50" in str(found.problem(LOG))
    found = account(row(0, 10), row(20, 40), row(30, 40), position=40)
    assert "lacks [10, 20)" in str(found.problem(LOG))
    found = account(row(0, 20), row(10, 20), row(30, 40), position=40)
    assert "claims [10, 20) twice" in str(found.problem(LOG))


ENDS = st.integers(0, 40)
RANGES = st.tuples(ENDS, ENDS).map(lambda ends: span(min(ends), max(ends)))
FILLED = RANGES.filter(lambda one: not one.is_empty)


def offsets(*ranges: OffsetRange) -> set[int]:
    return {at for one in ranges for at in range(one.start, one.end)}


@given(
    st.lists(FILLED, max_size=6),
    st.lists(FILLED, max_size=3),
    st.lists(FILLED, max_size=3).map(joined),
    st.lists(FILLED, max_size=3),
    ENDS,
    ENDS,
)
def test_every_offset_is_accounted_for(
    rows: list[OffsetRange],
    deleted: list[OffsetRange],
    holes: tuple[OffsetRange, ...],
    lost: list[OffsetRange],
    first: int,
    position: int,
) -> None:
    """A retention that was killed has deleted what lies in the hole at the front."""
    found = account(
        *(row(one.start, one.end) for one in rows),
        *(row(one.start, one.end, deleted=True) for one in deleted),
        position=position,
        first=first,
        holes=holes,
        incidents=[incident(one.start, one.end) for one in lost],
    )
    front = next((hole.end for hole in holes if hole.start == 0), 0)
    deleted = [one for one in (*deleted, *(one for one in rows if one.end <= front)) if one.start < position]
    rows = [one for one in rows if one.start < position and one.end > front]
    claims = Counter(at for one in rows for at in offsets(one)) + Counter(offsets(*holes) & offsets(*rows))
    assert offsets(*(one.range for one in found.whole)) == offsets(*rows)
    assert offsets(*found.overlaps) == {at for at, count in claims.items() if count > 1}
    assert len(found.missing) == len({one.range.start for one in found.missing})
    missing = {at: one for one in found.missing for at in offsets(one.range)}
    assert set(missing) == set(range(position)) - offsets(*rows)
    for at, one in missing.items():
        assert one.reason is reason_of(at, holes, first, lost, deleted)
    assert (found.problem(LOG) is None) == (
        not found.overlaps
        and all(one.reason is not Reason.UNEXPLAINED for one in found.missing)
        and max(offsets(*rows), default=0) < max(position, 1)
    )


def reason_of(
    at: int, holes: Sequence[OffsetRange], first: int, lost: Sequence[OffsetRange], deleted: Sequence[OffsetRange]
) -> Reason:
    if at not in offsets(*holes):
        return Reason.UNEXPLAINED
    if at < first:
        return Reason.BEGINNING
    if at in offsets(*lost):
        return Reason.INCIDENT
    return Reason.RETENTION if at in offsets(*deleted) else Reason.UNEXPLAINED


def test_a_day_of_one_second_commits_takes_no_time() -> None:
    count = 86_400
    table = pa.table(
        {
            "start": pa.array(range(0, count * 10, 10), pa.int64()),
            "end": pa.array(range(10, count * 10 + 10, 10), pa.int64()),
            "first_store_timestamp": pa.array(range(count), pa.int64()),
            "last_store_timestamp": pa.array(range(count), pa.int64()),
            "deleted_at": pa.nulls(count, pa.int64()),
        }
    ).cast(SCHEMA)
    (whole,), doubled = stretches(table)
    assert (whole.range, whole.first_us, whole.last_us, doubled) == (span(0, count * 10), 0, count - 1, [])
