"""The comparison with a master that has dropped records: what it has must be equal, what it has not says nothing."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.proof.comparison import compare
from sinks.proof.master_bytes import master_bytes, side_by_side
from sinks.proof.verdicts import Claim, Compared, Difference, DifferenceKind, Verdict
from sources.errors import CorruptRecord
from sources.kafka.format.columns import canonical
from sources.master import Damage, MasterLog
from sources.offsets import Offset, OffsetRange
from tests.sinks.compacted_log import CompactedLog, Row, checksum, records, row

OFFSETS = (0, 1, 2, 5, 6, 9, 20, 21, 22, 30)
ROWS = tuple(row(offset, b"%d" % offset * (offset % 4)) for offset in OFFSETS)
END = Offset(33)
KEPT = (1, 5, 20, 30)
LEFT = tuple(one for one in ROWS if one["offset"] in KEPT)


def claim(rows: Sequence[Row] = ROWS, start: int = 0, end: int = END) -> Claim:
    return Claim(OffsetRange(Offset(start), Offset(end)), checksum(rows), len(rows), len(canonical(records(rows))))


WHOLE = claim()


def batches(rows: Sequence[Row], size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield records(rows[at : at + size])


def compared(rows: Sequence[Row], left: Sequence[Row], one: Claim = WHOLE, *, is_compacted: bool = True) -> Compared:
    """The same, however the rows come in batches."""
    found = set()
    for size in (1, 4, 100):
        master = cast(MasterLog, CompactedLog(tuple(left), is_compacted))
        with master_bytes(master, one.range, END) as held:
            found |= set(compare([one], batches(rows, size), held, master))
    assert len(found) == 1
    return found.pop()


def changed(rows: Sequence[Row], offset: int) -> list[Row]:
    return [one | {"value": b"another"} if one["offset"] == offset else one for one in rows]


def without(rows: Sequence[Row], *offsets: int) -> list[Row]:
    return [one for one in rows if one["offset"] not in offsets]


def test_what_compaction_took_is_counted() -> None:
    assert compared(ROWS, LEFT) == Compared(claim=WHOLE, verdict=Verdict.EQUAL, rows=10, compacted=6)
    assert compared(ROWS, ()) == Compared(claim=WHOLE, verdict=Verdict.EQUAL, rows=10, compacted=10)
    assert compared(ROWS, ROWS) == Compared(claim=WHOLE, verdict=Verdict.EQUAL, rows=10)
    found = compared(ROWS, LEFT, is_compacted=False)  # of any other topic what is gone is a difference
    assert (found.verdict, found.compacted, found.differing) == (Verdict.REWRITTEN, 0, 6)


@pytest.mark.parametrize("offset", KEPT)
def test_a_record_that_is_left_has_to_be_equal(offset: int) -> None:
    difference = (Difference(Offset(offset), DifferenceKind.CHANGED, offset),)
    found = compared(ROWS, changed(LEFT, offset))
    assert (found.verdict, found.compacted, found.differences) == (Verdict.REWRITTEN, 6, difference)
    found = compared(changed(ROWS, offset), LEFT)
    assert (found.verdict, found.compacted, found.differences) == (Verdict.REPLICA_DAMAGED, 6, difference)
    found = compared(without(ROWS, offset), LEFT)
    assert (found.verdict, found.rows, found.compacted) == (Verdict.REPLICA_DAMAGED, 9, 6)
    assert [one.kind for one in found.differences] == [DifferenceKind.MISSING]


@pytest.mark.parametrize("offset", [3, 10, 31])
def test_a_record_that_the_replica_never_had(offset: int) -> None:
    found = compared(ROWS, sorted((*LEFT, row(offset)), key=lambda one: cast(int, one["offset"])))
    assert (found.verdict, found.compacted) == (Verdict.REWRITTEN, 6)
    assert [one.kind for one in found.differences] == [DifferenceKind.MISSING]


@pytest.mark.parametrize("offset", [0, 2, 22])
def test_of_what_the_master_has_no_more_the_ledger_decides(offset: int) -> None:
    """Table and master agree, in having no such record: that is no vote against the ledger."""
    lost = compared(without(ROWS, offset), LEFT)
    assert (lost.verdict, lost.compacted) == (Verdict.REPLICA_DAMAGED, 5)
    assert compared(changed(ROWS, offset), LEFT).verdict is Verdict.REPLICA_DAMAGED


def test_of_bytes_of_the_master_that_are_no_record_it_says_nothing_but_that() -> None:
    class Damaged(CompactedLog):
        def read(self, owned: OffsetRange, **_: object) -> Iterator[Any]:
            yield Damage(owned, memoryview(b"noise"), CorruptRecord("no magic number", offset=owned.start))

    master = cast(MasterLog, Damaged(LEFT))
    with master_bytes(master, WHOLE.range, END) as held, pytest.raises(CorruptRecord, match="no magic number"):
        list(compare([WHOLE], batches(ROWS, 4), held, master))


def test_where_all_is_left_the_master_votes_as_ever() -> None:
    wrong = Claim(WHOLE.range, checksum(ROWS[1:]), 10)
    assert compared(ROWS, ROWS, wrong, is_compacted=False).verdict is Verdict.LEDGER_WRONG
    assert compared(ROWS, ROWS, wrong).verdict is Verdict.REPLICA_DAMAGED


def test_a_range_is_fetched_once_and_the_policy_asked_for_once() -> None:
    rows = tuple(row(offset) for offset in range(100))
    claims = [claim(rows[at : at + 10], at, at + 10) for at in range(0, 100, 10)]
    log = CompactedLog(rows[::7])
    master = cast(MasterLog, log)
    with master_bytes(master, OffsetRange(Offset(0), Offset(100)), Offset(100)) as held:
        found = list(compare(claims, batches(rows, 30), held, master))
    assert [one.verdict for one in found] == [Verdict.EQUAL] * 10
    assert sum(one.compacted for one in found) == 100 - len(rows[::7])
    assert len(log.asked) == len(claims) + 1  # the first showed that something is gone
    assert len(log.policy) == 1


def test_where_nothing_differs_nobody_is_asked_for_the_policy() -> None:
    log = CompactedLog(ROWS)
    with master_bytes(cast(MasterLog, log), WHOLE.range, END) as held:
        (found,) = compare([WHOLE], batches(ROWS, 100), held, cast(MasterLog, log))
    assert (found.verdict, log.policy) == (Verdict.EQUAL, [])


PIECES = st.dictionaries(st.integers(0, 20), st.binary(max_size=2))


@given(PIECES, PIECES)
def test_side_by_side_is_each_offset_of_either(ours: dict[int, bytes], theirs: dict[int, bytes]) -> None:
    both = side_by_side(
        ((Offset(at), one) for at, one in sorted(ours.items())),
        ((Offset(at), one) for at, one in sorted(theirs.items())),
    )
    assert list(both) == [(at, ours.get(at), theirs.get(at)) for at in sorted(ours.keys() | theirs.keys())]
