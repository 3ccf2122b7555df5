"""sinks.split_job: what is planned of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.split_job import in_tasks, planned
from sources.errors import AboveMaximum, ReplicaError
from sources.master import PlanFailed, PlannedSplit
from sources.offsets import Offset, OffsetRange
from tests.sinks.batches import ranges
from tests.sinks.groups import batch_of

LOG = "rocketmq/broker-a"


@pytest.mark.spark
def test_the_splits_of_a_batch(spark: SparkSession) -> None:
    batch = OffsetRange(Offset(100), Offset(500))
    found = planned(ranges(spark, 100, 500, split=150), LOG)
    assert sorted(found, key=lambda split: split.as_row()[3] or 0) == [
        PlannedSplit("rocketmq/broker-a", batch, OffsetRange(Offset(start), Offset(end)))
        for start, end in ((100, 250), (250, 400), (400, 500))
    ]


@pytest.mark.spark
def test_a_plan_that_fails_names_its_logs(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet at all")
    batch = spark.read.schema("log_id string, a long, b long, c long, d long, error string").parquet(str(broken))
    with pytest.raises(ReplicaError, match="plans the batch") as caught:
        planned(batch, LOG)
    assert caught.value.log == "rocketmq/broker-a"


@pytest.mark.spark
def test_what_could_not_be_planned_comes_with_its_error(spark: SparkSession) -> None:
    failed = PlanFailed("rocketmq/b", AboveMaximum("the tail is gone", log="rocketmq/b", offset=7, hint="repair"))
    split = split_of("rocketmq/a", 10)
    first, second = planned(batch_of(spark, [failed, split]), LOG)
    assert isinstance(first, PlanFailed)
    assert (first.log_id, first.error.facts()) == ("rocketmq/b", failed.error.facts())
    assert second == split


# --- which split which task has


MIB = 1024 * 1024


def split_of(log_id: str, size: int, start: int = 0) -> PlannedSplit:
    owned = OffsetRange(Offset(start), Offset(start + size))
    return PlannedSplit(log_id, owned, owned)


def sizes(splits: list[PlannedSplit], *, cores: int) -> list[list[int]]:
    """Of each task the sizes of its splits."""
    tasks = in_tasks([(split, split.owned.size) for split in splits], cores=cores)
    return [[split.owned.size for split in task] for task in tasks]


def test_splits_are_dealt_out_so_that_tasks_take_as_long() -> None:
    small = [split_of(f"rocketmq/{number}", 100 * number) for number in (1, 2, 3, 4, 5)]
    assert sizes(small, cores=2) == [[500, 200, 100], [400, 300]]
    assert sizes(small, cores=9) == [[500], [400], [300], [200], [100]]


def test_a_large_split_has_a_task_for_itself_where_others_can_have_another() -> None:
    given = [split_of("rocketmq/a", 7), split_of("rocketmq/b", 200 * MIB), split_of("rocketmq/c", 9)]
    assert sizes(given, cores=2) == [[200 * MIB], [9, 7]]
    assert sizes(given, cores=1) == [[200 * MIB, 9, 7]]


def test_there_are_more_tasks_than_cores_only_where_one_would_read_for_long() -> None:
    """A GiB in splits of 16 MiB: four tasks of 256 MiB, and not 64, each of which costs beside its bytes."""
    backlog = [split_of(f"rocketmq/{number}", 16 * MIB) for number in range(64)]
    assert [sum(task) for task in sizes(backlog, cores=2)] == [256 * MIB] * 4
    full = [split_of("rocketmq/a", 256 * MIB, start=256 * MIB * number) for number in range(4)]
    assert sizes(full, cores=2) == [[256 * MIB]] * 4


def test_splits_of_whom_nobody_knows_how_large_they_are_are_dealt_out_evenly() -> None:
    ids = [(split_of(f"dister/{number}", 10**12), 0) for number in range(4)]
    assert [len(task) for task in in_tasks(ids, cores=2)] == [2, 2]


def test_each_split_is_given_once_and_none_to_a_task_of_nothing() -> None:
    given = [split_of("rocketmq/a", 10, start=10 * number) for number in range(23)]
    tasks = in_tasks([(split, 10) for split in given], cores=4)
    assert sorted((split for task in tasks for split in task), key=lambda split: split.owned.start) == given
    assert max(map(len, tasks)) - min(map(len, tasks)) <= 1
    assert in_tasks([], cores=4) == []
