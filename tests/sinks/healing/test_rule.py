"""Where two histories part by the master's own rule: what becomes of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from sinks.books.ledger_rows import LedgerRows
from sinks.healing.divergence import Comparison
from sinks.healing.rule import ComparisonByRule
from sinks.proof.stored_log import StoredLog, StoredRecord
from sources.epochs import Epoch, Parting
from sources.errors import ReplicaError
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange
from tests.sinks.healing.test_divergence import LOG, ROWS, Bytes, Ledger, Rows, Table

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


@dataclass(frozen=True)
class WithoutRule(Bytes):
    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> None:
        return None


def compared(
    master: Bytes, rows: Rows = ROWS, position: int = END, table: Table | None = None, parted: Parting | None = None
) -> Comparison:
    stored = cast(StoredLog, table or Table(rows))
    ledger = cast(LedgerRows, Ledger(rows))
    return ComparisonByRule(cast(MasterLog, master), ledger, stored, Offset(position), master.bounds, parted)


def found(master: Bytes, rows: Rows = ROWS, position: int = END) -> tuple[Condition, int, int] | None:
    divergence = compared(master, rows, position).find()
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
        (WithoutRule(other_from(14), 0), ROWS, END, (Condition.REWRITTEN, 12, 12)),
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

    divergence = compared(Ruling(LOG, 0), table=Torn(ROWS)).find()
    assert divergence is not None
    assert (divergence.condition, divergence.common) == (Condition.REWRITTEN, 12)


def test_without_a_rule_the_ledgers_checksums_are_compared() -> None:
    doubtful: Sequence[OffsetRange] = [OffsetRange(Offset(7), Offset(13))]
    assert compared(WithoutRule(LOG[:10] + b"\xff" + LOG[11:], 0)).find(doubtful) is not None


def by_epochs(master: Bytes, common: int | None) -> tuple[Condition | None, int, str]:
    """Where the epochs part at `common`."""
    at = None if common is None else Offset(common)
    ours, theirs = Epoch(2, Offset(0)), Epoch(3, at or Offset(0))
    parted = Parting(at, Offset(END), ours, theirs, Offset(len(master.log)))
    divergence = compared(master, parted=parted).find()
    return (None, 0, "") if divergence is None else (divergence.condition, divergence.common, divergence.cause)


@pytest.mark.parametrize("common", [3, 9, 21])
@pytest.mark.parametrize("behind", [b"", b"others", LOG])
def test_where_the_epochs_part_all_above_goes(common: int, behind: bytes) -> None:
    """Whatever lies there: of a master that was elected nothing above its predecessor's end can be the same record."""
    found = by_epochs(WithoutRule(LOG[:common] + behind, 0), common)
    assert found[:2] == (Condition.FAILED_OVER, common)
    assert f"epoch 3 from {common} on" in found[2]


def test_bytes_that_differ_below_the_common_point_contradict_the_epochs() -> None:
    found = by_epochs(WithoutRule(other_from(3), 0), 21)
    assert found[:2] == (Condition.EPOCHS_CONTRADICT, 3)
    assert "by their bytes up to 3 only" in found[2]


@pytest.mark.parametrize(("log", "minimum", "common"), [(b"x" * END, 0, 21), (b"x" * END, 0, 0), (LOG, 12, 9)])
def test_where_no_byte_tells_that_it_is_one_log_a_person_has_to(log: bytes, minimum: int, common: int) -> None:
    found = by_epochs(WithoutRule(log, minimum), common)
    assert found[0] is Condition.EPOCHS_CONTRADICT
    assert found[1] <= common
    assert "by their bytes nowhere" in found[2]


def test_epochs_that_share_nothing_leave_it_to_the_bytes() -> None:
    assert by_epochs(WithoutRule(LOG, 0), None)[0] is None
