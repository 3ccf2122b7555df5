"""The task function, called as Spark calls it, without Spark."""

from __future__ import annotations

import hashlib
import pickle
import uuid
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kafka.split_files import Answers
from sinks.kafka.split_report import Answered, TopicReport
from sinks.kafka.tasks import Held, TopicWriter
from sources.errors import (
    BelowMinimum,
    CorruptRecord,
    CoverageError,
    Gap,
    LogtwinError,
    MasterSilent,
    Recreated,
    ReplicaError,
    Rewritten,
    find_error,
)
from sources.master import PlannedSplit
from sources.master_topic import PartitionChunk, PartitionPosition
from sources.offsets import Offset, OffsetRange
from tests.sinks.kafka.memory_topic import (
    ORDERS,
    TOPIC_ID,
    FailingPartition,
    MemoryPartition,
    MemoryTopic,
    ScriptedPartition,
    sent_at,
    with_partition,
)

HOLED = (0, 1, 2, 7, 8, 19, 20, 21, 33)
TOPIC = MemoryTopic.of(HOLED, tuple(range(40)), (), end=40)
FRESH = Held(0, None)
Split = tuple[int, tuple[int, int], tuple[int, int]]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    (tmp_path / "kafka_log").mkdir()
    return tmp_path


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


def at(offset: int, leader_epoch: int | None = None, epoch: int = 0) -> Held:
    return Held(epoch, PartitionPosition(Offset(offset), leader_epoch))


def planned(*splits: Split) -> list[PlannedSplit]:
    """Of each: partition, split, its batch."""
    return [PlannedSplit(f"{ORDERS}/{number}", span(*batch), span(*split)) for number, split, batch in splits]


def whole(number: int, start: int = 0, end: int = 40) -> Split:
    return number, (start, end), (start, end)


def reports(
    warehouse: Path,
    splits: Iterable[PlannedSplit],
    topic: MemoryTopic = TOPIC,
    held: dict[int, Held] | None = None,
    topic_id: uuid.UUID = TOPIC_ID,
) -> list[TopicReport]:
    write = TopicWriter(topic, topic_id, held or {}, FRESH, str(warehouse))
    return [TopicReport.from_json(report) for report in write(splits)]


def one(
    warehouse: Path, *splits: Split, topic: MemoryTopic = TOPIC, held: dict[int, Held] | None = None
) -> TopicReport:
    (report,) = reports(warehouse, planned(*splits), topic, held)
    if report.error is not None:
        raise report.error
    return report


def stored(warehouse: Path) -> list[dict[str, Any]]:
    return [row for path in warehouse.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]


def checksum(partition: MemoryPartition, covered: OffsetRange) -> str:
    return f"sha256:{hashlib.sha256(partition.chunk(covered).raw).hexdigest()}"


def test_splits_of_several_partitions_are_one_file_in_order(warehouse: Path) -> None:
    report = one(warehouse, (1, (20, 40), (0, 40)), whole(0), (1, (0, 20), (0, 40)), held={1: at(0, epoch=3)})
    (path,) = (warehouse / "kafka_log").iterdir()
    assert report.file is not None
    assert (report.file.name, report.file.records) == (path.name, 49)
    assert path.name.startswith("part-00000000000000000000-")
    rows = stored(warehouse)
    expected = chain.from_iterable(partition.rows(span(0, 40)) for partition in TOPIC.partitions.values())
    identity = ("log_id", "epoch", "topic", "partition")
    assert [{name: row[name] for name in row if name not in identity} for row in rows] == list(expected)
    assert [tuple(row[name] for name in identity) for row in rows] == [
        *[("kafka/prod/orders/0", 0, "orders", 0)] * 9,
        *[("kafka/prod/orders/1", 3, "orders", 1)] * 40,
    ]


def test_each_split_is_reported_as_it_was_answered(warehouse: Path) -> None:
    report = one(warehouse, (1, (0, 20), (0, 40)), whole(0, 0, 23), (1, (20, 40), (0, 40)))
    assert report.log_id == ORDERS
    assert report.batches == ((0, span(0, 23)), (1, span(0, 40)))
    assert [(one.partition, one.range, one.records, one.leader_epoch) for one in report.answered] == [
        (0, span(0, 23), 8, 2),
        (1, span(0, 20), 20, 1),
        (1, span(20, 40), 20, 3),
    ]
    for answered in report.answered:
        partition = TOPIC.partitions[answered.partition]
        assert answered.bytes == len(partition.chunk(answered.range).raw)
        assert answered.checksum == checksum(partition, answered.range)
    # of 0, 1, 2, 7, 8, 19, 20 and 21 those have no time that are 2 modulo 3
    times = [(one.first_timestamp_us, one.last_timestamp_us) for one in report.answered[:1]]
    assert times == [(int(sent_at(0).timestamp() * 1_000_000), int(sent_at(21).timestamp() * 1_000_000))]


@given(st.sets(st.integers(0, 39)), st.integers(1, 20), st.integers(1, 15))
def test_how_it_is_cut_changes_nothing(offsets: set[int], split: int, chunk: int) -> None:
    """Of what is read: the records, their number, their bytes, and the times and the epoch at the end."""
    partition = replace(TOPIC.partitions[0], offsets=tuple(sorted(offsets)), chunk_offsets=chunk)
    found = [answered_of(partition, piece) for piece in span(0, 40).in_pieces(split)]
    whole = answered_of(replace(partition, chunk_offsets=40), span(0, 40))
    assert sum(one.records for one in found) == whole.records == len(offsets)
    assert sum(one.bytes for one in found) == whole.bytes
    assert min((one.first_timestamp_us for one in found if one.first_timestamp_us), default=None) == (
        whole.first_timestamp_us
    )
    assert max((one.last_timestamp_us for one in found if one.last_timestamp_us), default=None) == (
        whole.last_timestamp_us
    )
    assert found[-1].leader_epoch == whole.leader_epoch == 3
    assert [one.checksum for one in found] == [checksum(partition, piece) for piece in span(0, 40).in_pieces(split)]


def answered_of(partition: MemoryPartition, owned: OffsetRange) -> Answered:
    answers = Answers(0, owned)
    for chunk in partition.read(owned):
        answers.add(chunk)
    return answers.finish()


def test_holes_alone_leave_no_file(warehouse: Path) -> None:
    report = one(warehouse, whole(2), whole(0, 9, 19))
    assert [(one.partition, one.range, one.records, one.bytes) for one in report.answered] == [
        (0, span(9, 19), 0, 0),
        (2, span(0, 40), 0, 0),
    ]
    assert [(one.first_timestamp_us, one.last_timestamp_us) for one in report.answered] == [(None, None)] * 2
    assert {one.checksum for one in report.answered} == {f"sha256:{hashlib.sha256(b'').hexdigest()}"}
    assert report.file is None
    assert stored(warehouse) == []


def test_it_travels_to_the_tasks(warehouse: Path) -> None:
    write = pickle.loads(pickle.dumps(TopicWriter(TOPIC, TOPIC_ID, {0: at(0)}, FRESH, str(warehouse))))  # noqa: S301 - ours
    assert len(list(write(planned(whole(0), whole(1))))) == 1
    assert len(stored(warehouse)) == 49


def test_a_task_without_a_split_says_nothing(warehouse: Path) -> None:
    assert reports(warehouse, []) == []


# --- the handshake, partition by partition


def test_what_lies_below_the_position_is_not_read(warehouse: Path) -> None:
    splits: list[Split] = [(1, (start, start + 10), (0, 40)) for start in (0, 10, 20, 30)]
    report = one(warehouse, *splits, whole(0), held={1: at(15), 0: at(40)})
    assert [(one.partition, one.range) for one in report.answered] == [
        (1, span(15, 20)),
        (1, span(20, 30)),
        (1, span(30, 40)),
    ]
    assert report.batches == ((0, span(0, 40)), (1, span(0, 40)))
    assert [(row["partition"], row["offset"]) for row in stored(warehouse)] == [(1, offset) for offset in range(15, 40)]


def test_a_replay_reads_nothing(warehouse: Path) -> None:
    broken = failing(CorruptRecord("bad checksum"), number=0)
    report = one(warehouse, whole(0), topic=broken, held={0: at(40)})
    assert (report.answered, report.file) == ((), None)
    assert stored(warehouse) == []


def test_the_epoch_of_the_position_goes_along_with_what_begins_there(warehouse: Path) -> None:
    topic = MemoryTopic.of((), (), (), end=40)
    one(
        warehouse,
        (0, (0, 30), (0, 40)),
        (0, (30, 40), (0, 40)),
        (1, (15, 40), (15, 40)),
        topic=topic,
        held={0: at(15, 1)},
    )
    assert topic.partitions[0].asked == [(span(15, 30), 1), (span(30, 40), None)]
    assert topic.partitions[1].asked == [(span(15, 40), None)]


def failure(
    warehouse: Path, *splits: Split, topic: MemoryTopic = TOPIC, held: dict[int, Held] | None = None
) -> LogtwinError:
    with pytest.raises(LogtwinError) as caught:
        one(warehouse, *splits, topic=topic, held=held)
    assert stored(warehouse) == []
    assert list((warehouse / "kafka_log").iterdir()) == []
    return caught.value


def test_another_history_before_the_position_is_refused(warehouse: Path) -> None:
    error = failure(warehouse, whole(0), whole(1, 15), held={1: at(15, leader_epoch=7)})
    assert (type(error), error.log, error.offset) == (Rewritten, "kafka/prod/orders/1", 15)


def test_a_gap_travels_as_a_value(warehouse: Path) -> None:
    error = failure(warehouse, whole(0), whole(1, 20), held={1: at(15)})
    assert (type(error), error.log, error.offset) == (Gap, "kafka/prod/orders/1", 15)


@pytest.mark.parametrize(
    "log",
    ["kafka/prod/payments/1", "kafka/prod/1", "kafka/prod/orders/0/1", "kafka/prod/orders/all", "rocketmq/orders"],
)
def test_a_batch_of_another_topic_is_refused(warehouse: Path, log: str) -> None:
    other = PlannedSplit(log, span(0, 0), span(0, 0))
    (report,) = reports(warehouse, [*planned(whole(0)), other])
    assert (type(report.error), getattr(report.error, "log", None)) == (ReplicaError, "kafka/prod/orders")
    assert f"found {log}" in str(report.error)
    assert stored(warehouse) == []


def test_a_topic_of_another_id_is_not_read(warehouse: Path) -> None:
    (report,) = reports(warehouse, planned(whole(0)), topic_id=uuid.uuid4())
    assert isinstance(report.error, Recreated)


# --- what goes wrong while reading


def fields_of(partition: MemoryPartition) -> dict[str, Any]:
    return {"log_id": partition.log_id, "number": partition.number, "offsets": partition.offsets, "end": partition.end}


def failing(error: LogtwinError, number: int = 1) -> MemoryTopic:
    return with_partition(TOPIC, FailingPartition(**fields_of(TOPIC.partitions[number]), error=error))


def test_an_error_travels_as_a_value_and_leaves_no_file(warehouse: Path) -> None:
    """Also none of another partition, whose records were written before."""
    error = failure(warehouse, whole(0), whole(1), topic=failing(CorruptRecord("bad checksum", offset=10)))
    assert (type(error), error.log, error.offset) == (CorruptRecord, "kafka/prod/orders/1", 10)


def test_what_retention_took_is_below_the_minimum(warehouse: Path) -> None:
    topic = with_partition(TOPIC, replace(TOPIC.partitions[1], start=20))
    error = failure(warehouse, whole(0), whole(1, 10), topic=topic)
    assert (type(error), error.log, error.offset) == (BelowMinimum, "kafka/prod/orders/1", 10)


def test_what_a_retry_can_help_is_raised_for_spark_to_retry(warehouse: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        reports(warehouse, planned(whole(0), whole(1)), failing(MasterSilent("nothing comes")))
    error = find_error(str(caught.value))
    assert isinstance(error, MasterSilent)
    assert error.log == "kafka/prod/orders/1"
    assert list((warehouse / "kafka_log").iterdir()) == []


ALL = TOPIC.partitions[1]


def moved(chunk: PartitionChunk, covered: OffsetRange) -> PartitionChunk:
    """The same records, said to be of another range."""
    return replace(chunk, covered=covered)


def backwards(covered: OffsetRange) -> PartitionChunk:
    chunk = ALL.chunk(covered)
    order = pa.array(range(chunk.records.num_rows - 1, -1, -1))
    return replace(chunk, records=chunk.records.take(order))


@pytest.mark.parametrize(
    ("chunks", "offset"),
    [
        ((), 0),
        ((ALL.chunk(span(0, 30)),), 30),
        ((ALL.chunk(span(0, 20)), ALL.chunk(span(21, 40))), 20),
        ((ALL.chunk(span(0, 20)), ALL.chunk(span(19, 40))), 20),
        ((ALL.chunk(span(0, 20)),) * 2, 20),
        ((ALL.chunk(span(1, 40)),), 0),
        ((ALL.chunk(span(0, 41)),), 40),
        ((ALL.chunk(span(0, 40)), ALL.chunk(span(40, 41))), 40),
        ((moved(ALL.chunk(span(0, 40)), span(0, 39)), ALL.chunk(span(39, 40))), 39),
        ((moved(ALL.chunk(span(0, 40)), span(0, 20)), ALL.chunk(span(20, 40))), 20),
        ((ALL.chunk(span(0, 20)), moved(ALL.chunk(span(19, 40)), span(20, 40))), 19),
        ((backwards(span(0, 40)),), 38),
    ],
    ids=[
        "nothing", "short", "a hole", "an overlap", "twice", "late", "too long", "one too many", "a record behind",
        "records of another range", "a record before", "not in order",
    ],
)  # fmt: skip
def test_chunks_that_are_not_the_split_are_refused(
    warehouse: Path, chunks: tuple[PartitionChunk, ...], offset: int
) -> None:
    scripted = ScriptedPartition(**fields_of(ALL), chunks=chunks)
    error = failure(warehouse, whole(0), whole(1), topic=with_partition(TOPIC, scripted))
    assert (type(error), error.log, error.offset) == (CoverageError, "kafka/prod/orders/1", offset)
    assert error.hint


def test_a_report_survives_its_json(warehouse: Path) -> None:
    report = one(warehouse, whole(0), whole(1), whole(2))
    assert TopicReport.from_json(report.as_json()) == report
    failed = TopicReport(log_id=ORDERS, error=CorruptRecord("bad", log="kafka/prod/orders/1", offset=7))
    again = TopicReport.from_json(failed.as_json())
    assert isinstance(again.error, CorruptRecord)
    assert (again.error.facts(), again.log_id) == (failed.error.facts(), ORDERS)  # type: ignore[union-attr]
