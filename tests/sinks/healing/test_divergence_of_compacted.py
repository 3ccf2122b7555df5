"""What compaction took at the master is no other history: repair goes back only for records that are other ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from sinks.books.ledger import LedgerRows
from sinks.healing.divergence import Comparison
from sinks.proof.stored import StoredLog, StoredRecord
from sinks.values.ledger_row import LedgerRow
from sources.kafka.format.columns import canonical
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange
from tests.sinks.accounts import ledger_row
from tests.sinks.compacted_log import CompactedLog, Row, checksum, records, row

COUNT, A_ROW = 40, 8
ROWS = tuple(row(offset, b"%d" % offset) for offset in range(COUNT))
LEFT = tuple(one for one in ROWS if cast(int, one["offset"]) % 5 == 0)
EVERYTHING = OffsetRange(Offset(0), Offset(COUNT))


@dataclass(frozen=True)
class Ledger:
    """Rows of `A_ROW` offsets."""

    def overlapping(self, wanted: OffsetRange) -> list[LedgerRow]:
        rows = (self._row(at) for at in range(0, COUNT, A_ROW))
        return [one for one in rows if one.range.overlaps(wanted)]

    def _row(self, at: int) -> LedgerRow:
        mine = ROWS[at : at + A_ROW]
        return ledger_row(at, at + A_ROW, canonical(records(mine)), records=A_ROW, checksum=checksum(mine))


@dataclass(frozen=True)
class Table:
    rows: Sequence[Row]

    def records(self, wanted: OffsetRange) -> Iterator[StoredRecord]:
        for one in self.rows:
            if (at := cast(Offset, one["offset"])) in wanted:
                yield StoredRecord(OffsetRange(at, Offset(at + 1)), canonical(records([one])), None)


def comparison(left: Sequence[Row], rows: Sequence[Row] = ROWS, *, is_compacted: bool = True) -> Comparison:
    master = cast(MasterLog, CompactedLog(tuple(left), is_compacted))
    ledger, table = cast(LedgerRows, Ledger()), cast(StoredLog, Table(rows))
    return Comparison(master, ledger, table, Offset(COUNT), EVERYTHING)


@pytest.mark.parametrize("left", [LEFT, LEFT[3:4], ()])
def test_a_compacted_log_is_the_same(left: Sequence[Row]) -> None:
    found = comparison(left)
    assert found.find() is None
    assert found.find([OffsetRange(Offset(3), Offset(30))]) is None
    assert found.is_equal(EVERYTHING)


def test_of_any_other_log_what_is_gone_is_another_history() -> None:
    found = comparison(LEFT, is_compacted=False).find()
    assert found is not None
    assert (found.condition, found.common) == (Condition.REWRITTEN, 1)  # the record at 0 is there


@pytest.mark.parametrize(
    ("parted", "common"),
    [
        (1, 1),  # behind the record at 0, which both have
        (11, 11),  # in [8, 16) both have the one at 10
        (16, 16),  # in [16, 24) the only one, at 20, is another: the row before agrees
        (21, 24),  # in [16, 24) none is another
        (26, 26),  # in [24, 32) both have the one at 25
        (36, None),  # none is left from there on
    ],
)
def test_records_that_are_other_ones_are_another_history(parted: int, common: int | None) -> None:
    """The common point is behind a row of the ledger that agrees, or the last record in it that both have."""
    left = [one | {"value": b"another"} if cast(int, one["offset"]) >= parted else one for one in LEFT]
    found = comparison(left).find()
    expected = None if common is None else (Condition.REWRITTEN, common)
    assert (None if found is None else (found.condition, found.common)) == expected


def test_rows_that_neither_has_any_more_are_no_agreement() -> None:
    lacking = [one for one in ROWS if cast(int, one["offset"]) < 33]
    found = comparison(ROWS[::33], lacking).find()
    assert found is not None
    assert (found.condition, found.common) == (Condition.REWRITTEN, 32)


def test_the_masters_record_counts_where_the_replicas_own_row_is_damaged() -> None:
    """Damage of ours is no reason to go back: what the master has left is what was replicated."""
    rows = [one | {"value": b"damaged"} if one["offset"] == 10 else one for one in ROWS]
    assert comparison(LEFT, rows).find() is None
