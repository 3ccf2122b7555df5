"""The replica of a topic in memory: batches, replays, overlaps and gaps; what a kill leaves; who owns it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sinks.incidents import Action, Incident
from sinks.kafka.replica import TopicReplica
from sinks.log_state import Writer
from sinks.steps import Step
from sinks.tables import spark_schema
from sources.errors import CoverageError, Gap, LogtwinError, Recreated, ReplicaError, TakenOver, find_error
from sources.loss import Condition
from sources.master import RANGES_SCHEMA
from sources.master_topic import PartitionPosition, partition_log
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.kafka.memory_topic import (
    ORDERS,
    TOPIC_ID,
    MemoryTopic,
    RecordingTopicSession,
    ScriptedPartition,
    epoch_before,
    with_partition,
)

pytestmark = pytest.mark.spark

TOPIC = MemoryTopic.of(tuple(range(40)), (), (0, 1, 2, 7, 19, 20, 33), end=40)
START = {0: Offset(0), 1: Offset(0), 2: Offset(0)}
Batch = Mapping[int, tuple[int, int]]


def frame(spark: SparkSession, batch: Batch, split: int = 10, *, log_id: LogId = ORDERS) -> DataFrame:
    rows = [
        (str(partition_log(log_id, number)), start, end, piece.start, piece.end, None)
        for number, (start, end) in batch.items()
        for piece in OffsetRange(Offset(start), Offset(end)).in_pieces(split)
    ]
    return spark.createDataFrame(rows, spark_schema(RANGES_SCHEMA))


class Twin:
    """A replica in `lake`, with its session and the steps it takes."""

    def __init__(self, spark: SparkSession, lake: Path, topic: MemoryTopic = TOPIC) -> None:
        self._spark = spark
        self._lake = lake
        self.session = RecordingTopicSession()
        self.steps: list[Step] = []
        self.replica = TopicReplica(
            spark, str(lake), topic, self.session, Writer.of_this_process(), on_step=self.steps.append
        )

    def opened(self) -> Twin:
        if self.replica.open() is None:
            self.replica.begin(TOPIC_ID, START)
        return self

    def takes(self, batch: Batch) -> None:
        self.replica.apply(frame(self._spark, batch))

    @property
    def offsets(self) -> dict[int, int]:
        return {number: one.offset for number, one in self.replica.state.partitions.items()}

    def rows(self) -> dict[int, list[int]]:
        """The offsets in the table, in order, by partition."""
        table = self._spark.read.format("delta").load(f"{self._lake}/kafka_log")
        found: dict[int, list[int]] = {}
        for row in table.orderBy("partition", "offset").collect():
            found.setdefault(row["partition"], []).append(row["offset"])
        return found

    def ledger(self) -> list[tuple[str, int, int, int]]:
        table = self._spark.read.format("delta").load(f"{self._lake}/ledger").orderBy("log_id", "start")
        return [(row["log_id"], row["start"], row["end"], row["records"]) for row in table.collect()]


def expected(batch: Mapping[int, tuple[int, int]], topic: MemoryTopic = TOPIC) -> dict[int, list[int]]:
    rows = {
        number: [at for at in topic.partitions[number].offsets if start <= at < end]
        for number, (start, end) in batch.items()
    }
    return {number: offsets for number, offsets in rows.items() if offsets}


def test_batches_of_several_partitions_are_one_commit_each(spark: SparkSession, tmp_path: Path) -> None:
    twin = Twin(spark, tmp_path).opened()
    twin.takes({0: (0, 25), 1: (0, 10), 2: (0, 20)})
    assert twin.steps == [Step.FILES, Step.COMMIT, Step.ACKNOWLEDGE, Step.LEDGER]
    assert twin.offsets == {0: 25, 1: 10, 2: 20}
    assert twin.session.promises == [
        {number: PartitionPosition(Offset(end), epoch_before(end)) for number, end in ((0, 25), (1, 10), (2, 20))}
    ]
    # an overlap in one, a replay in another, one that is not in it, one that was added later
    topic = with_partition(TOPIC, MemoryTopic.of((), (), (), (3, 4), end=40).partitions[3])
    later = Twin(spark, tmp_path, topic).opened()
    later.takes({0: (20, 40), 1: (0, 10), 3: (0, 5)})
    assert later.offsets == {0: 40, 1: 10, 2: 20, 3: 5}
    assert later.rows() == expected({0: (0, 40), 1: (0, 10), 2: (0, 20), 3: (0, 5)}, topic)
    last = later.replica.last
    assert last is not None
    assert (last.range, last.records, last.is_overlap) == (OffsetRange(Offset(55), Offset(75)), 17, True)
    logs = [str(partition_log(ORDERS, number)) for number in range(4)]
    assert later.ledger() == [
        (logs[0], 0, 10, 10), (logs[0], 10, 20, 10), (logs[0], 20, 25, 5), (logs[0], 25, 30, 5), (logs[0], 30, 40, 10),
        (logs[1], 0, 10, 0), (logs[2], 0, 10, 4), (logs[2], 10, 20, 1), (logs[3], 0, 5, 2),
    ]  # fmt: skip


def test_a_replay_commits_nothing_and_promises_again(spark: SparkSession, tmp_path: Path) -> None:
    twin = Twin(spark, tmp_path).opened()
    twin.takes({0: (0, 10), 2: (0, 5)})
    commits = twin.replica.state.commits
    twin.takes({0: (0, 10), 2: (0, 4)})
    assert twin.replica.state.commits == commits
    assert twin.session.promises[-1] == twin.replica.state.positions
    assert twin.rows() == expected({0: (0, 10), 2: (0, 5)})


def raised(twin: Twin, batch: Batch) -> LogtwinError:
    with pytest.raises(LogtwinError) as found:
        twin.takes(batch)
    told = find_error("\n".join(found.value.__notes__))
    assert told is not None
    assert type(told) is type(found.value)
    return told


def test_nothing_is_committed_of_a_batch_that_is_wrong_in_one_partition(spark: SparkSession, tmp_path: Path) -> None:
    twin = Twin(spark, tmp_path).opened()
    gap = raised(twin, {0: (0, 10), 2: (5, 10)})
    assert (type(gap), gap.log, gap.offset) == (Gap, str(partition_log(ORDERS, 2)), 0)
    short = TOPIC.partitions[0].chunk(OffsetRange(Offset(0), Offset(4)))
    partition = ScriptedPartition(partition_log(ORDERS, 0), 0, (), 40, chunks=(short,))
    broken = Twin(spark, tmp_path, with_partition(TOPIC, partition)).opened()
    error = raised(broken, {0: (0, 10), 2: (0, 10)})
    assert (type(error), error.log, error.offset) == (CoverageError, str(partition_log(ORDERS, 0)), 4)
    assert broken.offsets == {0: 0, 1: 0, 2: 0}
    assert list((tmp_path / "kafka_log").glob("*.parquet")) == []
    assert broken.session.promises == []


class Killed(BaseException):
    """As a kill: nothing of ours handles it."""


@pytest.mark.parametrize(
    ("step", "rows", "ledger"),
    [(Step.FILES, 10, 1), (Step.COMMIT, 20, 1), (Step.ACKNOWLEDGE, 20, 1), (Step.LEDGER, 20, 2)],
)
def test_after_a_kill_there_is_one_copy_of_everything(
    spark: SparkSession, tmp_path: Path, step: Step, rows: int, ledger: int
) -> None:
    twin = Twin(spark, tmp_path).opened()
    twin.takes({0: (0, 10)})

    def die(done: Step) -> None:
        if done is step:
            raise Killed

    dying = TopicReplica(spark, str(tmp_path), TOPIC, RecordingTopicSession(), on_step=die)
    dying.open()
    with pytest.raises(Killed):
        dying.apply(frame(spark, {0: (10, 20)}))
    assert len(twin.rows()[0]) == rows
    assert len(twin.ledger()) == ledger
    again = Twin(spark, tmp_path).opened()
    again.takes({0: (10, 20), 1: (0, 10)})
    assert again.rows() == expected({0: (0, 20), 1: (0, 10)})
    assert [row[:3] for row in again.ledger()] == [
        (str(partition_log(ORDERS, number)), start, start + 10) for number, start in ((0, 0), (0, 10), (1, 0))
    ]


def test_the_newest_start_owns_the_topic(spark: SparkSession, tmp_path: Path) -> None:
    first = Twin(spark, tmp_path).opened()
    first.takes({0: (0, 10)})
    second = Twin(spark, tmp_path).opened()
    assert type(raised(first, {0: (10, 20)})) is TakenOver
    with pytest.raises(TakenOver):
        first.replica.check_ownership()
    with pytest.raises(TakenOver):
        first.replica.open()
    second.takes({0: (10, 20)})
    assert second.rows() == expected({0: (0, 20)})
    assert first.session.acknowledged == {0: 10}


def test_what_is_passed_is_a_hole_with_an_incident(spark: SparkSession, tmp_path: Path) -> None:
    twin = Twin(spark, tmp_path).opened()
    twin.takes({0: (0, 10)})
    lost = Incident(
        condition=Condition.BELOW_MINIMUM, start=Offset(10), end=Offset(30), cause="gone", action=Action.SKIPPED,
        detected_at=1,
    )  # fmt: skip
    with pytest.raises(ValueError, match="does not begin at the position 0"):
        twin.replica.skip(1, lost)
    twin.replica.skip(0, lost)
    assert twin.replica.state.partition(0).holes == (lost.range,)
    twin.takes({0: (30, 40)})
    assert twin.rows() == expected({0: (0, 10)}) | {0: [*range(10), *range(30, 40)]}
    (row,) = spark.read.format("delta").load(f"{tmp_path}/incidents").collect()
    assert (row["log_id"], row["start"], row["end"]) == (str(partition_log(ORDERS, 0)), 10, 30)


def test_another_topic_of_the_same_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    replica = TopicReplica(spark, str(tmp_path), TOPIC, RecordingTopicSession())
    assert replica.open() is None
    with pytest.raises(ReplicaError, match="not begun"):
        replica.apply(frame(spark, {0: (0, 10)}))
    replica.begin(uuid.uuid4(), START)
    with pytest.raises(Recreated):
        replica.prove_master()
    with pytest.raises(Recreated):
        replica.apply(frame(spark, {0: (0, 10)}))
