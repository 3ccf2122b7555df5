"""The job of a batch: who writes what, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sinks.kafka.batch_proof import prove_topic_batch
from sinks.kafka.split_job import discard_files, run_topic_splits
from sinks.kafka.tasks import Held, TopicWriter
from sinks.tables import KAFKA_LOG, spark_schema
from sources.errors import MasterSilent, ReplicaError
from sources.master import PlannedSplit
from sources.offsets import Offset, OffsetRange
from tests.sinks.kafka.memory_topic import ORDERS, TOPIC_ID, FailingPartition, MemoryTopic, with_partition

pytestmark = pytest.mark.spark

CORES = 2  # of the session
TOPIC = MemoryTopic.of(tuple(range(40)), (), (0, 1, 2, 7, 19, 20, 33), end=40)
FRESH = Held(0, None)
ALL = OffsetRange(Offset(0), Offset(40))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    (tmp_path / "kafka_log").mkdir()
    return tmp_path


def splits(numbers: Sequence[int], split: int) -> list[PlannedSplit]:
    """All of these partitions in splits of so many offsets."""
    return [PlannedSplit(f"{ORDERS}/{number}", ALL, one) for number in numbers for one in ALL.in_pieces(split)]


def writer(warehouse: Path, topic: MemoryTopic = TOPIC) -> TopicWriter:
    return TopicWriter(topic, TOPIC_ID, {}, FRESH, str(warehouse))


def names(warehouse: Path) -> set[str]:
    return {path.name for path in (warehouse / "kafka_log").iterdir()}


def test_a_file_for_each_task_and_no_more_tasks_than_run_at_once(spark: SparkSession, warehouse: Path) -> None:
    reports = run_topic_splits(spark, splits((0, 1, 2), split=10), writer(warehouse))
    files = [report.file.name for report in reports if report.file is not None]
    assert len(reports) == len(files) == CORES
    assert names(warehouse) == set(files)
    assert [(one.partition, one.range) for report in reports for one in report.answered] == [
        (number, piece) for number in range(3) for piece in ALL.in_pieces(10)
    ]
    batch = prove_topic_batch(reports, {}, FRESH)
    assert batch is not None
    assert {number: moved.range for number, moved in batch.moved.items()} == dict.fromkeys(range(3), ALL)
    assert in_table(spark, warehouse) == [
        (number, row["offset"], row["timestamp"] and row["timestamp"].timestamp(), row["value"], row["headers"])
        for number, partition in TOPIC.partitions.items()
        for row in partition.rows(ALL)
    ]
    discard_files(str(warehouse), reports)
    assert names(warehouse) == set()


def in_table(spark: SparkSession, warehouse: Path) -> list[Any]:
    """As Spark reads the files."""
    rows = spark.read.schema(spark_schema(KAFKA_LOG.schema)).parquet(KAFKA_LOG.path(str(warehouse)))
    return [
        (
            row.partition,
            row.offset,
            row.timestamp and row.timestamp.timestamp(),
            row.value and bytes(row.value),
            headers,
        )
        for row in rows.orderBy("partition", "offset").collect()
        for headers in [[header.asDict() for header in row.headers]]
    ]


def test_no_file_for_holes(spark: SparkSession, warehouse: Path) -> None:
    reports = run_topic_splits(spark, splits([1], split=4), writer(warehouse))
    assert [report.file for report in reports] == [None] * CORES
    assert names(warehouse) == set()
    batch = prove_topic_batch(reports, {}, FRESH)
    assert batch is not None
    assert [(number, row.range, row.records) for number, row in batch.ledger(9)] == [
        (1, piece, 0) for piece in ALL.in_pieces(4)
    ]


def test_one_split_is_one_task(spark: SparkSession, warehouse: Path) -> None:
    (report,) = run_topic_splits(spark, splits([2], split=40), writer(warehouse))
    assert report.file is not None
    assert names(warehouse) == {report.file.name}


def test_what_a_task_raises_is_raised(spark: SparkSession, warehouse: Path) -> None:
    given = TOPIC.partitions[0]
    failing = FailingPartition(given.log_id, 0, given.offsets, 40, error=MasterSilent("nothing comes", offset=4))
    with pytest.raises(MasterSilent) as caught:
        run_topic_splits(spark, splits([0], split=40), writer(warehouse, with_partition(TOPIC, failing)))
    assert (caught.value.log, caught.value.offset) == ("kafka/prod/orders/0", 4)
    assert names(warehouse) == set()


def test_what_spark_says_names_the_topic(spark: SparkSession, warehouse: Path) -> None:
    with pytest.raises(ReplicaError) as caught:
        run_topic_splits(spark, splits([0], split=40), writer(warehouse / "gone"))
    assert caught.value.log == "kafka/prod/orders"
    assert "No such file or directory" in str(caught.value)
