"""sinks.batch.split_job: what is planned of a batch."""

from __future__ import annotations

from sinks.batch.split_job import in_tasks
from sources.master import PlannedSplit
from sources.offsets import Offset, OffsetRange

LOG = "rocketmq/broker-a"


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


def test_a_large_split_has_a_task_for_itself() -> None:
    given = [split_of("rocketmq/a", 7), split_of("rocketmq/b", 200 * MIB), split_of("rocketmq/c", 9)]
    assert sizes(given, cores=2) == [[200 * MIB], [9, 7]]
    assert sizes(given, cores=1) == [[200 * MIB, 9, 7]]


def test_more_tasks_than_cores_only_for_long_reads() -> None:
    """A GiB in splits of 16 MiB: four tasks of 256 MiB, and not 64, each of which costs beside its bytes."""
    backlog = [split_of(f"rocketmq/{number}", 16 * MIB) for number in range(64)]
    assert [sum(task) for task in sizes(backlog, cores=2)] == [256 * MIB] * 4
    full = [split_of("rocketmq/a", 256 * MIB, start=256 * MIB * number) for number in range(4)]
    assert sizes(full, cores=2) == [[256 * MIB]] * 4


def test_splits_of_unknown_size_are_dealt_out_evenly() -> None:
    ids = [(split_of(f"dister/{number}", 10**12), 0) for number in range(4)]
    assert [len(task) for task in in_tasks(ids, cores=2)] == [2, 2]


def test_each_split_is_given_once_and_none_to_a_task_of_nothing() -> None:
    given = [split_of("rocketmq/a", 10, start=10 * number) for number in range(23)]
    tasks = in_tasks([(split, 10) for split in given], cores=4)
    assert sorted((split for task in tasks for split in task), key=lambda split: split.owned.start) == given
    assert max(map(len, tasks)) - min(map(len, tasks)) <= 1
    assert in_tasks([], cores=4) == []
