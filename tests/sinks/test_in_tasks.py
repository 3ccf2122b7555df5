"""sinks.batch.tasks.in_tasks: which split which task has."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.batch.tasks import TASK_BYTES, in_tasks
from sources.master import PlannedSplit
from sources.offsets import Offset, OffsetRange

MIB = 1024 * 1024


def of_sizes(sizes: Sequence[int]) -> list[tuple[PlannedSplit, int]]:
    """A split of each, told apart by its offsets."""
    ranges = [OffsetRange(Offset(number), Offset(number + 1)) for number in range(len(sizes))]
    return [(PlannedSplit("rocketmq/a", one, one), size) for one, size in zip(ranges, sizes, strict=True)]


def numbers(sizes: Sequence[int], cores: int) -> list[list[int]]:
    return [[split.owned.start for split in task] for task in in_tasks(of_sizes(sizes), cores=cores)]


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([], 4, []),
        # no more than splits or cores
        ([5, 7], 4, [[1], [0]]),
        ([1] * 5, 2, [[0, 2, 4], [1, 3]]),
        # about the same bytes in each
        ([100, 200, 300, 400, 500], 2, [[4, 1, 0], [3, 2]]),
        ([900, 100, 100, 100], 2, [[0], [1, 2, 3]]),
        # of unknown size they are dealt out evenly
        ([0] * 4, 2, [[0, 2], [1, 3]]),
    ],
)
def test_which_task_has_which(sizes: list[int], cores: int, tasks: list[list[int]]) -> None:
    assert numbers(sizes, cores) == tasks


def test_one_that_would_read_for_long_becomes_more_in_whole_rounds() -> None:
    """Two cores: as long as a task reads no more than that there are two of them."""
    full = [TASK_BYTES // 4] * 8
    assert len(in_tasks(of_sizes(full), cores=2)) == 2
    assert len(in_tasks(of_sizes([*full, MIB]), cores=2)) == 4
    assert len(in_tasks(of_sizes([3 * TASK_BYTES]), cores=2)) == 1  # a single split may be longer


@given(st.lists(st.integers(0, TASK_BYTES), max_size=40), st.integers(1, 8))
def test_each_split_is_given_once_and_no_task_is_left_without(sizes: list[int], cores: int) -> None:
    tasks = numbers(sizes, cores)
    assert sorted(number for task in tasks for number in task) == list(range(len(sizes)))
    assert all(tasks)
    loads = [sum(sizes[number] for number in task) for task in tasks]
    # Who has the most would have had the last of it put elsewhere, if that were better.
    assert max(loads, default=0) - min(loads, default=0) <= max(sizes, default=0)
