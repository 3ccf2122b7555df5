"""Where two histories part: for random ledgers, holes and masters the same as by looking at every record."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.books.ledger import LedgerRows
from sinks.healing.common_point import last_agreeing, last_equal
from sinks.healing.divergence import Comparison
from sinks.proof.stored import StoredLog, StoredRecord
from sinks.values.continuity import Link
from sinks.values.ledger_row import LedgerRow
from sources.epochs import Epoch, Parting
from sources.errors import ReplicaError
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

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset | None:
        """It has no rule of its own."""
        return None

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


def compared(
    rows: Rows, position: int, master: Bytes, table: Table | None = None, parted: Parting | None = None
) -> Comparison:
    ledger, stored = cast(LedgerRows, Ledger(rows)), cast(StoredLog, table or Table(rows))
    return Comparison(cast(MasterLog, master), ledger, stored, Offset(position), master.bounds, parted)


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


END = len(LOG)


@dataclass(frozen=True)
class Ruling(Bytes):
    """Says how far replica and it are the same, whatever is there: `answer`, or by every record's bytes."""

    answer: int | None = None

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset:
        if self.answer is not None:
            return Offset(self.answer)
        common = Offset(0)
        for covered, raw in records:
            if self.log[covered.start : covered.end] != raw:
                break
            common = covered.end
        return common


def found(master: Bytes, rows: Rows = ROWS, position: int = END) -> tuple[Condition, int, int] | None:
    divergence = compared(rows, position, master).find()
    return None if divergence is None else (divergence.condition, divergence.common, divergence.out.start)


def other_from(common: int) -> bytes:
    return LOG[:common] + bytes(255 for _ in LOG[common:])


@pytest.mark.parametrize(
    ("master", "rows", "position", "expected"),
    [
        (Ruling(LOG, 0), ROWS, END, None),
        (Ruling(LOG + b"more", 0), ROWS, END, None),
        # it is believed whatever bytes are there
        (Ruling(bytes(END), 0, answer=END), ROWS, END, None),
        (Ruling(LOG, 0, answer=9), ROWS, END, (Condition.REWRITTEN, 9, 9)),
        # an empty master has to be accepted, and one that cannot give again what would go
        (Ruling(b"", 0), ROWS, END, (Condition.RECREATED, 0, 0)),
        (Ruling(b"", 0), [], 0, None),
        (Ruling(LOG, 9, answer=0), ROWS, END, (Condition.RECREATED, 9, 0)),
        # a hole at the end is no difference
        (Ruling(LOG, 0), ROWS[:3], END, None),
        (Ruling(LOG[:20], 0), ROWS[:3], END, (Condition.ABOVE_MAXIMUM, 18, 18)),
        # commits that were lost are found as ever
        (Ruling(LOG, 0), ROWS, 18, (Condition.REPLICA_DAMAGED, 18, 18)),
    ],
)
def test_how_far_it_goes_back(
    master: Bytes, rows: Rows, position: int, expected: tuple[Condition, int, int] | None
) -> None:
    assert found(master, rows, position) == expected


@pytest.mark.parametrize("common", [0, 3, 9, 21])
def test_the_replica_goes_back_to_the_common_point_even_to_nothing(common: int) -> None:
    other = other_from(common)
    assert found(Ruling(other, 0)) == (Condition.REWRITTEN, common, common)
    assert found(Ruling(other + b"more", 0)) == (Condition.REWRITTEN, common, common)
    assert found(Ruling(other[: common + 1], 0)) == (Condition.ABOVE_MAXIMUM, common, common)


def test_what_cannot_be_read_is_not_the_masters() -> None:
    class Torn(Table):
        def records(self, wanted: OffsetRange) -> Iterator[StoredRecord]:
            for record in super().records(wanted):
                if record.range.start == 12:
                    raise ReplicaError("cannot be read")
                yield record

    divergence = compared(ROWS, END, Ruling(LOG, 0), Torn(ROWS)).find()
    assert divergence is not None
    assert (divergence.condition, divergence.common) == (Condition.REWRITTEN, 12)


def by_epochs(master: Bytes, common: int | None) -> tuple[Condition | None, int, str]:
    """Where the epochs part at `common`."""
    at = None if common is None else Offset(common)
    ours, theirs = Epoch(2, Offset(0)), Epoch(3, at or Offset(0))
    parted = Parting(at, Offset(END), ours, theirs, Offset(len(master.log)))
    divergence = compared(ROWS, END, master, parted=parted).find()
    return (None, 0, "") if divergence is None else (divergence.condition, divergence.common, divergence.cause)


@pytest.mark.parametrize("common", [3, 9, 21])
@pytest.mark.parametrize("behind", [b"", b"others", LOG])
def test_where_the_epochs_part_all_above_goes(common: int, behind: bytes) -> None:
    """Whatever lies there: of a master that was elected nothing above its predecessor's end can be the same record."""
    found = by_epochs(Bytes(LOG[:common] + behind, 0), common)
    assert found[:2] == (Condition.FAILED_OVER, common)
    assert f"epoch 3 from {common} on" in found[2]


def test_epochs_that_share_nothing_leave_it_to_the_bytes_and_those_that_contradict_them_say_so() -> None:
    found = by_epochs(Bytes(other_from(3), 0), 21)
    assert found[:2] == (Condition.EPOCHS_CONTRADICT, 3)
    assert "by their bytes up to 3 only" in found[2]
    assert by_epochs(Bytes(LOG, 0), None)[0] is None


@pytest.mark.parametrize(("log", "minimum", "common"), [(b"x" * END, 0, 21), (b"x" * END, 0, 0), (LOG, 12, 9)])
def test_where_no_byte_tells_that_it_is_one_log_a_person_has_to(log: bytes, minimum: int, common: int) -> None:
    found = by_epochs(Bytes(log, minimum), common)
    assert found[0] is Condition.EPOCHS_CONTRADICT
    assert found[1] <= common
    assert "by their bytes nowhere" in found[2]


@given(st.integers(0, 5000).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count))))
def test_the_last_row_that_agrees_is_found_with_few_comparisons(case: tuple[int, int]) -> None:
    count, agreeing = case
    asked: list[int] = []

    def agrees(row: int) -> bool:
        asked.append(row)
        return row < agreeing

    assert last_agreeing(range(count), agrees) == (agreeing - 1 if agreeing else None)
    assert asked[:1] == list(range(count))[-1:]
    assert len(asked) == len(set(asked))
    assert agreeing < count or len(asked) <= 1
    distance = count - agreeing + 1
    assert len(asked) <= 2 * math.log2(distance) + 2


RECORDS = st.lists(st.tuples(st.integers(0, 5), st.binary(min_size=1, max_size=20)), min_size=1, max_size=30)


def with_gaps(records: list[tuple[int, bytes]], start: int) -> list[tuple[OffsetRange, bytes]]:
    """Records with so many bytes between each and the one before, from `start` on."""
    found, at = [], start
    for gap, raw in records:
        found.append((OffsetRange(Offset(at + gap), Offset(at + gap + len(raw))), raw))
        at += gap + len(raw)
    return found


def pieces_of(data: bytes, size: int) -> Iterator[memoryview]:
    """In pieces that are gone when the next is asked for."""
    for at in range(0, len(data), size):
        with memoryview(data[at : at + size]) as piece:
            yield piece


@given(RECORDS, st.integers(0, 1 << 40), st.integers(1, 50), st.data())
def test_records_are_compared_up_to_the_first_that_differs(
    given_records: list[tuple[int, bytes]], start: int, piece: int, data: st.DataObject
) -> None:
    records = with_gaps(given_records, start)
    log = bytearray(records[-1][0].end - start)
    for covered, raw in records:
        log[covered.start - start : covered.end - start] = raw
    cut = data.draw(st.integers(0, len(log)), label="the master's log ends here")
    del log[cut:]
    changed = data.draw(st.integers(0, len(log)), label="and has another byte here")
    if changed < len(log):
        log[changed] ^= 0xFF
    same = []
    for covered, raw in records:
        if bytes(log[covered.start - start : covered.end - start]) != raw:
            break
        same.append(Link.of(covered, raw))
    assert last_equal(records, pieces_of(bytes(log), piece), Offset(start), counts_bytes=True) == (
        same[-1] if same else None
    )
