"""A batch of a log whose offsets may have no record against a model: what is proven, what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sinks.batch.coverage import Covered
from sinks.batch.proof import ProvenBatch, prove_batch
from sinks.batch.split_report import SplitReport, WrittenStretch
from sinks.books.ledger_row import LedgerRow
from sinks.delta.data_file import DataFile
from sources.errors import Gap
from sources.offsets import Offset, OffsetRange
from tests.sinks.spans import span

LOG = "kafka/prod/orders/0"


def answered(start: int, end: int) -> WrittenStretch:
    """A record at each third offset; everything about it follows from the range."""
    records = len(range(start, end, 3))
    return WrittenStretch(
        covered=Covered(span(start, end), Offset(end - 1)),
        checksum=f"sum of {start}",
        bytes=100 * (end - start),
        records=records,
        link=None,
        mark=end // 2,
        first_store_us=start,
        last_store_us=None,
        file=DataFile(f"{start}.parquet", 1, 2, records, "{}"),
    )


def report(split: OffsetRange, batch: OffsetRange, *pieces: WrittenStretch) -> SplitReport:
    return SplitReport(LOG, split, batch, pieces)


def task(*pieces: WrittenStretch, batch: tuple[int, int] = (0, 100)) -> list[SplitReport]:
    """A report of each, as of the split that it answers."""
    return [report(one.covered.range, span(*batch), one) for one in pieces]


def proven(reports: Sequence[SplitReport], position: int | None = 0) -> ProvenBatch:
    batch = prove_batch(reports, None if position is None else Offset(position))
    assert batch is not None
    return batch


def test_an_overlap_moves_from_the_position_to_the_end() -> None:
    batch = proven(task(answered(50, 100), answered(20, 50)), position=20)
    assert (batch.range, batch.is_overlap, batch.mark, batch.link) == (span(20, 100), True, 50, None)
    assert [file.name for file in batch.files] == ["20.parquet", "50.parquet"]
    assert (batch.records, batch.lost) == (10 + 17, ())


def test_a_row_of_the_ledger_for_each_split() -> None:
    first, second = proven(task(answered(50, 100), answered(20, 50)), position=20).ledger(9)
    assert first == LedgerRow(
        start=Offset(20), end=Offset(50), records=10, bytes=3000, checksum="sum of 20",
        first_store_timestamp=20, last_store_timestamp=None, committed_at=9, origin="stream",
    )  # fmt: skip
    assert (second.range, second.records, second.checksum) == (span(50, 100), 17, "sum of 50")


def test_a_file_that_splits_share_is_committed_once() -> None:
    file = DataFile("shared.parquet", 1, 2, 34, "{}")
    pieces = [replace(one, file=file) for one in (answered(0, 50), answered(50, 100))]
    assert proven(task(*pieces)).files == [file]


def test_nothing_new() -> None:
    asked = report(span(0, 100), span(0, 100))
    assert prove_batch([asked], Offset(100)) is None
    assert prove_batch([asked], Offset(140)) is None
    assert prove_batch([report(span(7, 7), span(7, 7))], Offset(0)) is None
    assert prove_batch([], Offset(0)) is None


# --- the model


@dataclass(frozen=True)
class Asked:
    """What was asked: a batch, in splits, of which the position leaves `answers`."""

    position: int | None
    batch: OffsetRange
    splits: tuple[OffsetRange, ...]

    @property
    def start(self) -> int:
        """Where what is new begins; at the end of the batch or behind it there is nothing."""
        return max(self.batch.start, self.position or 0)

    @property
    def at(self) -> Offset | None:
        return None if self.position is None else Offset(self.position)

    @property
    def is_new(self) -> bool:
        return self.start < self.batch.end

    def answers(self, split: OffsetRange) -> list[WrittenStretch]:
        start = max(split.start, self.start)
        return [answered(start, split.end)] if start < split.end else []

    def reports(self) -> list[SplitReport]:
        return [report(split, self.batch, *self.answers(split)) for split in self.splits]


@st.composite
def batches(draw: st.DrawFn) -> Asked:
    start = draw(st.integers(0, 20))
    end = start + draw(st.integers(0, 30))
    cuts = sorted(draw(st.sets(st.integers(start, end), max_size=5)) - {start, end})
    splits = tuple(span(*cut) for cut in zip([start, *cuts], [*cuts, end], strict=True))
    return Asked(draw(st.none() | st.integers(start, end + 5)), span(start, end), splits)


@given(batches(), st.data())
def test_an_honest_read_is_proven_in_whatever_order_it_comes(asked: Asked, data: st.DataObject) -> None:
    reports = data.draw(st.permutations(asked.reports()))
    batch = prove_batch(reports, asked.at)
    assert (batch is not None) == asked.is_new
    if batch is None:
        return
    assert (batch.range, batch.mark) == (span(asked.start, asked.batch.end), asked.batch.end // 2)
    assert batch.is_overlap == (asked.batch.start < asked.start)
    assert batch.written == tuple(one for split in asked.splits for one in asked.answers(split))
    assert batch.records == sum(file.records for file in batch.files)


@given(batches(), st.data())
def test_an_early_end_is_proven_up_to_there(asked: Asked, data: st.DataObject) -> None:
    reports = asked.reports()
    longer = [one for one in reports if one.written and one.written[0].covered.range.size > 1]
    assume(longer)
    ended = data.draw(st.sampled_from(longer))
    covered = ended.written[0].covered.range
    until = Offset(data.draw(st.integers(covered.start + 1, covered.end - 1)))
    short = replace(ended, written=(answered(covered.start, until),), until=until)
    changed = [short if one is ended else one for one in reports]
    batch = prove_batch(data.draw(st.permutations(changed)), asked.at)
    assert batch is not None
    assert (batch.range, batch.mark) == (span(asked.start, until), until // 2)
    behind = [one for one in reports if one.split.start >= covered.end]
    assert list(batch.late) == behind
    assert not {file.name for file in batch.files} & {name for one in behind for name in one.files}


@given(batches())
def test_a_batch_above_the_position_is_a_gap(asked: Asked) -> None:
    assume(asked.batch.start > 0 and not asked.batch.is_empty)
    with pytest.raises(Gap) as caught:
        prove_batch(asked.reports(), Offset(asked.batch.start - 1))
    assert caught.value.offset == asked.batch.start - 1


# --- what contradicts itself
