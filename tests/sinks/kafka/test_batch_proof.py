"""A batch of a topic against a model of each partition: what is proven, what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sinks.files import DataFile
from sinks.kafka.batch_proof import Moved, ProvenTopicBatch, prove_topic_batch
from sinks.kafka.split_report import Answered, TopicReport
from sinks.kafka.tasks import Held
from sinks.ledger import LedgerRow
from sources.errors import CorruptRecord, CoverageError, Gap
from sources.master_topic import PartitionPosition
from sources.offsets import Offset, OffsetRange
from tests.sinks.kafka.memory_topic import ORDERS

FRESH = Held(0, None)


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


def at(offset: int, leader_epoch: int | None = None) -> Held:
    return Held(0, PartitionPosition(Offset(offset), leader_epoch))


def answered(number: int, start: int, end: int) -> Answered:
    """A record at each third offset; everything about it follows from the range."""
    return Answered(
        partition=number,
        range=span(start, end),
        records=len(range(start, end, 3)),
        bytes=100 * (end - start),
        checksum=f"sum of {number} {start}",
        first_timestamp_us=start,
        last_timestamp_us=None,
        leader_epoch=end // 2,
    )


def report(batches: Sequence[tuple[int, OffsetRange]], answers: Sequence[Answered]) -> TopicReport:
    """Of a task that was given splits of `batches`, and has a file where it had records."""
    records = sum(one.records for one in answers)
    name = "-".join(f"{one.partition}:{one.range}" for one in answers)
    file = DataFile(name, 1, 2, records, "{}") if records else None
    return TopicReport(log_id=ORDERS, batches=tuple(dict.fromkeys(batches)), answered=tuple(answers), file=file)


def task(*answers: Answered, batch: tuple[int, int] = (0, 100)) -> TopicReport:
    return report([(one.partition, span(*batch)) for one in answers], answers)


def proven(*reports: TopicReport, held: dict[int, Held] | None = None) -> ProvenTopicBatch:
    batch = prove_topic_batch(reports, held or {}, FRESH)
    assert batch is not None
    return batch


def test_partitions_are_proven_each_for_itself() -> None:
    tasks = task(answered(1, 50, 100), answered(0, 0, 100)), task(answered(1, 20, 50))
    batch = proven(*tasks, held={1: at(20)})
    assert batch.moved == {
        0: Moved(span(0, 100), is_overlap=False, end=PartitionPosition(Offset(100), 50)),
        1: Moved(span(20, 100), is_overlap=True, end=PartitionPosition(Offset(100), 50)),
    }
    assert batch.files == tuple(one.file for one in tasks)
    assert (batch.records, batch.bytes) == (34 + 10 + 17, 18_000)


def test_a_row_of_the_ledger_for_each_split() -> None:
    tasks = task(answered(1, 50, 100), answered(0, 0, 100)), task(answered(1, 20, 50))
    ledger = proven(*tasks, held={1: at(20)}).ledger(9)
    assert [(number, row.range, row.checksum) for number, row in ledger] == [
        (0, span(0, 100), "sum of 0 0"),
        (1, span(20, 50), "sum of 1 20"),
        (1, span(50, 100), "sum of 1 50"),
    ]
    assert ledger[1][1] == LedgerRow(
        start=Offset(20), end=Offset(50), records=10, bytes=3000, checksum="sum of 1 20",
        first_store_timestamp=20, last_store_timestamp=None, committed_at=9, origin="stream",
    )  # fmt: skip


def test_a_batch_of_holes_moves_on_without_a_file() -> None:
    empty = replace(answered(0, 0, 100), records=0, bytes=0)
    batch = proven(task(empty))
    assert (batch.moved[0].range, batch.files, batch.records) == (span(0, 100), (), 0)
    assert [row.records for _, row in batch.ledger(9)] == [0]


def test_nothing_new_in_any_partition() -> None:
    asked = [(0, span(0, 100)), (1, span(40, 60)), (2, span(7, 7))]
    assert prove_topic_batch([report(asked, [])], {0: at(100), 1: at(80)}, FRESH) is None
    assert prove_topic_batch([], {}, FRESH) is None


def test_a_partition_that_is_replayed_contributes_nothing() -> None:
    tasks = report([(0, span(0, 100)), (1, span(0, 100))], [answered(1, 0, 100)])
    batch = proven(tasks, held={0: at(100)})
    assert list(batch.moved) == [1]
    assert {number for number, _ in batch.ledger(9)} == {1}


def test_what_is_held_by_default() -> None:
    batch = prove_topic_batch([task(answered(3, 50, 100))], {0: at(7)}, at(50))
    assert batch is not None
    assert batch.moved[3].is_overlap
    with pytest.raises(Gap):
        prove_topic_batch([task(answered(3, 0, 100), batch=(1, 100))], {}, at(0))


# --- the model


@dataclass(frozen=True)
class Asked:
    """What was asked of a partition: its batch, in splits, of which the position leaves `answers`."""

    number: int
    position: int | None
    batch: OffsetRange
    splits: tuple[OffsetRange, ...]

    @property
    def start(self) -> int:
        """Where what is new begins; at the end of the batch or behind it there is nothing."""
        return max(self.batch.start, self.position or 0)

    @property
    def answers(self) -> list[Answered]:
        cut = ((max(split.start, self.start), split.end) for split in self.splits)
        return [answered(self.number, start, end) for start, end in cut if start < end]


@st.composite
def partitions(draw: st.DrawFn, number: int) -> Asked:
    start = draw(st.integers(0, 20))
    end = start + draw(st.integers(0, 30))
    cuts = sorted(draw(st.sets(st.integers(start, end), max_size=5)) - {start, end})
    splits = tuple(span(*cut) for cut in zip([start, *cuts], [*cuts, end], strict=True))
    return Asked(number, draw(st.none() | st.integers(start, end + 5)), span(start, end), splits)


topics = st.integers(1, 4).flatmap(lambda count: st.tuples(*map(partitions, range(count))))


def spread(data: st.DataObject, asked: Sequence[Asked], answers: Sequence[Answered]) -> list[TopicReport]:
    """`answers` by tasks that were given splits of any partitions."""
    tasks = data.draw(st.lists(st.integers(0, 3), min_size=len(answers), max_size=len(answers)))
    batches = {one.number: one.batch for one in asked}
    found = []
    for number in data.draw(st.permutations(range(4))):
        mine = [one for one, task in zip(answers, tasks, strict=True) if task == number]
        silent = [] if number else list(batches.items())  # one that has a split of each, of which nothing is new
        found.append(report([*silent, *((one.partition, batches[one.partition]) for one in mine)], mine))
    return found


def held_of(asked: Sequence[Asked]) -> dict[int, Held]:
    return {one.number: at(one.position) for one in asked if one.position is not None}


@given(topics, st.data())
def test_an_honest_read_by_any_tasks_is_proven(asked: tuple[Asked, ...], data: st.DataObject) -> None:
    answers = [one for partition in asked for one in partition.answers]
    reports = spread(data, asked, data.draw(st.permutations(answers)))
    batch = prove_topic_batch(reports, held_of(asked), FRESH)
    new = {one.number: one for one in asked if one.start < one.batch.end}
    if not new:
        assert batch is None
        return
    assert batch is not None
    assert {number: moved.range for number, moved in batch.moved.items()} == {
        number: span(one.start, one.batch.end) for number, one in new.items()
    }
    assert {number: moved.end for number, moved in batch.moved.items()} == {
        number: PartitionPosition(one.batch.end, one.batch.end // 2) for number, one in new.items()
    }
    overlaps = {number for number, moved in batch.moved.items() if moved.is_overlap}
    assert overlaps == {number for number, one in new.items() if one.batch.start < one.start}
    assert batch.answered == tuple(answers)
    assert sorted(file.name for file in batch.files) == sorted(one.file.name for one in reports if one.file)
    assert batch.records == sum(file.records for file in batch.files)


def shortened(one: Answered) -> list[Answered]:
    return [replace(one, range=span(one.range.start, one.range.end - 1))]


def begun_late(one: Answered) -> list[Answered]:
    return [replace(one, range=span(one.range.start + 1, one.range.end))]


def read_on(one: Answered) -> list[Answered]:
    return [replace(one, range=span(one.range.start, one.range.end + 1))]


def begun_early(one: Answered) -> list[Answered]:
    return [replace(one, range=span(max(0, one.range.start - 1), one.range.end + (one.range.start == 0)))]


@given(topics, st.data())
def test_a_split_that_is_not_there_once_is_found(asked: tuple[Asked, ...], data: st.DataObject) -> None:
    answers = [one for partition in asked for one in partition.answers]
    assume(answers)
    wrong = data.draw(st.sampled_from(answers))
    becomes = data.draw(
        st.sampled_from([lambda one: [], lambda one: [one, one], shortened, begun_late, read_on, begun_early])
    )
    changed = [one for one in answers if one is not wrong] + becomes(wrong)
    reports = spread(data, asked, data.draw(st.permutations(changed)))
    with pytest.raises(CoverageError) as caught:
        prove_topic_batch(reports, held_of(asked), FRESH)
    error = caught.value
    assert error.log == f"kafka/prod/orders/{wrong.partition}"
    assert error.offset is not None
    assert error.expected
    assert error.found
    assert error.hint


@given(topics, st.data())
def test_a_batch_above_the_position_is_a_gap(asked: tuple[Asked, ...], data: st.DataObject) -> None:
    late = data.draw(st.sampled_from(asked))
    assume(late.batch.start > 0 and not late.batch.is_empty)
    ahead = {**held_of(asked), late.number: at(late.batch.start - 1)}
    with pytest.raises(Gap) as caught:
        prove_topic_batch(spread(data, asked, [one for each in asked for one in each.answers]), ahead, FRESH)
    assert (caught.value.log, caught.value.offset) == (f"kafka/prod/orders/{late.number}", late.batch.start - 1)


# --- what contradicts itself


def refused(*reports: TopicReport, held: dict[int, Held] | None = None) -> CoverageError:
    with pytest.raises(CoverageError) as caught:
        prove_topic_batch(reports, held or {}, FRESH)
    return caught.value


def test_what_a_hole_is_told_with() -> None:
    error = refused(task(answered(0, 0, 100), answered(1, 0, 30)), task(answered(1, 60, 100)))
    assert (error.log, error.offset) == ("kafka/prod/orders/1", 30)
    assert (error.expected, error.found) == ("a piece that starts at 30", "a piece that covers [60, 100)")


def test_splits_of_two_batches_of_a_partition() -> None:
    error = refused(task(answered(0, 0, 50), batch=(0, 50)), task(answered(0, 50, 100)))
    assert (error.log, error.found) == ("kafka/prod/orders/0", "[0, 50), [0, 100)")


def test_an_answer_that_nobody_asked_for() -> None:
    assert refused(report([(0, span(0, 100))], [answered(0, 0, 100), answered(1, 0, 100)])).log == "kafka/prod/orders/1"


@pytest.mark.parametrize("read", [(0, 100), (90, 100), (100, 110)])
def test_what_is_replayed_is_not_read(read: tuple[int, int]) -> None:
    error = refused(task(answered(0, *read), answered(1, 0, 100)), held={0: at(100)})
    assert error.log == "kafka/prod/orders/0"


@pytest.mark.parametrize("file", [None, DataFile("short", 1, 2, 33, "{}"), DataFile("long", 1, 2, 35, "{}")])
def test_a_file_that_holds_other_records(file: DataFile | None) -> None:
    error = refused(replace(task(answered(0, 0, 100)), file=file))
    assert (error.log, error.expected) == ("kafka/prod/orders", "34 records")


def test_the_error_of_one_task_is_the_batchs() -> None:
    failed = TopicReport(log_id=ORDERS, error=CorruptRecord("bad", log="kafka/prod/orders/1", offset=70))
    with pytest.raises(CorruptRecord, match="orders/1 at offset 70: bad"):
        prove_topic_batch([task(answered(0, 0, 50)), failed], {}, FRESH)
