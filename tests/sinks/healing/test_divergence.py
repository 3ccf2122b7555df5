"""Where two histories part: for random ledgers, holes and masters the same as by looking at every record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from sinks.books.ledger_rows import LedgerRows
from sinks.healing.divergence import Comparison
from sinks.proof.stored_log import StoredLog, StoredRecord
from sinks.values.ledger_row import LedgerRow
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.accounts import ledger_row

Rows = Sequence[Sequence[StoredRecord]]
"""The records of each row of a ledger."""


@dataclass(frozen=True)
class Bytes:
    """A master's, which begin at `minimum`; from below that nothing may be asked for."""

    log: bytes
    minimum: int

    @property
    def log_id(self) -> LogId:
        return LogId("rocketmq", "test")

    @property
    def bounds(self) -> OffsetRange:
        return OffsetRange(Offset(self.minimum), Offset(len(self.log)))

    def drops_records(self) -> bool:
        return False

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Iterator[memoryview]:
        assert self.minimum <= wanted.start <= wanted.end <= len(self.log)
        assert committed is not None
        assert wanted.start <= committed
        yield memoryview(self.log)[wanted.start : wanted.end]


@dataclass(frozen=True)
class Ledger:
    rows: Rows

    def overlapping(self, wanted: OffsetRange) -> list[LedgerRow]:
        return [row for row in map(row_of, self.rows) if row.start < wanted.end and row.end > wanted.start]


@dataclass(frozen=True)
class Table:
    rows: Rows

    def records(self, wanted: OffsetRange) -> Iterator[StoredRecord]:
        return (record for row in self.rows for record in row if record.range.start in wanted)


def row_of(records: Sequence[StoredRecord]) -> LedgerRow:
    raw = b"".join(record.raw for record in records)
    return ledger_row(records[0].range.start, records[-1].range.end, raw, records=len(records))


def compared(rows: Rows, position: int, master: Bytes) -> Comparison:
    ledger, table = cast(LedgerRows, Ledger(rows)), cast(StoredLog, Table(rows))
    return Comparison(cast(MasterLog, master), ledger, table, Offset(position), master.bounds)


def laid_out(sizes: Sequence[int]) -> list[StoredRecord]:
    found, at = [], 0
    for number, size in enumerate(sizes):
        found.append(StoredRecord(OffsetRange(Offset(at), Offset(at + size)), bytes([number % 250 + 1]) * size, None))
        at += size
    return found


def by_every_record(rows: Rows, position: int, master: Bytes) -> tuple[Condition, int] | None:
    common, differs = None, position > len(master.log)
    for record in (record for row in rows for record in row if record.range.start >= master.minimum):
        if master.log[record.range.start : record.range.end] != record.raw:
            differs = True
            break
        common = record.range.end
    if not differs:
        return None
    if common is None:
        return Condition.RECREATED, master.minimum
    return Condition.ABOVE_MAXIMUM if position > len(master.log) else Condition.REWRITTEN, common


@st.composite
def histories(draw: st.DrawFn) -> tuple[Rows, int, Bytes]:
    """A log, what a replica has of it, and what a master has of it that went another way at some record."""
    records = laid_out(draw(st.lists(st.integers(1, 9), min_size=8, max_size=40), label="sizes"))
    boundaries = [record.range.start for record in records] + [records[-1].range.end]
    position, parted, end = (draw(st.sampled_from(boundaries), label=name) for name in ("position", "parted", "end"))
    minimum = draw(st.sampled_from([at for at in boundaries if at <= end]), label="minimum")
    log = b"".join(record.raw for record in records)
    log = log[:parted] + bytes(255 for _ in log[parted:])

    rows: list[list[StoredRecord]] = []
    for record in (record for record in records if record.range.end <= position):
        place = draw(st.sampled_from(["same row", "same row", "same row", "new row", "hole"]))
        if place == "new row" or (place == "same row" and (not rows or rows[-1][-1].range.end != record.range.start)):
            rows.append([])
        if place != "hole":
            rows[-1].append(record)
    return rows, position, Bytes(log[:end], minimum)


@given(histories())
def test_the_last_common_record_is_found(case: tuple[Rows, int, Bytes]) -> None:
    found = compared(*case).find()
    assert (None if found is None else (found.condition, found.common)) == by_every_record(*case)


ROWS = [laid_out([3] * 8)[at : at + 2] for at in (0, 2, 4, 6)]
LOG = b"".join(record.raw for row in ROWS for record in row)


def test_a_difference_in_the_middle_is_found_only_where_asked() -> None:
    master = Bytes(LOG[:10] + b"\xff" + LOG[11:], 0)
    comparison = compared(ROWS, len(LOG), master)
    assert comparison.find() is None
    found = comparison.find([OffsetRange(Offset(0), Offset(8)), OffsetRange(Offset(7), Offset(13))])
    assert found is not None
    assert (found.condition, found.common) == (Condition.REWRITTEN, 9)
    assert not comparison.is_equal(OffsetRange(Offset(7), Offset(13)))
    assert comparison.is_equal(OffsetRange(Offset(0), Offset(6)))
    assert not comparison.is_equal(OffsetRange(Offset(90), Offset(91)))


def test_a_checksum_of_the_ledger_that_is_wrong_is_no_reason_to_go_back() -> None:
    class Erring(Ledger):
        def overlapping(self, wanted: OffsetRange) -> list[LedgerRow]:
            rows = super().overlapping(wanted)
            return [LedgerRow(**{**row.as_dict(), "checksum": "sha256:00"}) if row.start == 6 else row for row in rows]

    master = Bytes(LOG, 0)
    comparison = Comparison(
        cast(MasterLog, master), cast(LedgerRows, Erring(ROWS)), cast(StoredLog, Table(ROWS)), Offset(24), master.bounds
    )
    assert comparison.find([OffsetRange(Offset(7), Offset(20))]) is None
