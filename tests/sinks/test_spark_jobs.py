"""sinks.delta.spark_jobs: what tasks of a job are given, and what comes back."""

import errno
import os
from collections.abc import Iterable, Iterator
from typing import NoReturn

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from sinks.delta.spark_jobs import JobFacts, run_shares, run_tasks
from sources.errors import MasterSilent, ReplicaError, StorageUnreachable, across_processes

pytestmark = pytest.mark.spark

FACTS = JobFacts(problem="the job failed", log="rocketmq/a", offset=7, hint="Run it again.")


def in_task(words: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each with the number of the task that was given it."""
    context = TaskContext.get()
    assert context is not None
    for word in words:
        yield context.partitionId(), word


def fail(words: Iterable[str]) -> NoReturn:
    raise ValueError(f"no {' or '.join(words)}")


def refuse(numbers: Iterable[int]) -> NoReturn:
    (number,) = numbers
    raise OSError(number, os.strerror(number))


def find_silence(words: Iterable[str]) -> NoReturn:
    with across_processes():
        raise MasterSilent("nothing comes", log="rocketmq/b", offset=len(list(words)))


@pytest.mark.parametrize(
    ("tasks", "shares"),
    [(1, [0, 0, 0, 0, 0]), (2, [0, 0, 1, 1, 1]), (4, [0, 1, 2, 3, 3]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])],
)
def test_no_more_tasks_than_wanted_and_none_for_nothing(spark: SparkSession, tasks: int, shares: list[int]) -> None:
    assert run_tasks(spark, in_task, "abcde", FACTS, tasks=tasks) == list(zip(shares, "abcde", strict=True))


def test_each_task_has_the_share_that_was_meant_for_it(spark: SparkSession) -> None:
    assert run_shares(spark, in_task, ["ab", "", "c"], FACTS) == [(0, "a"), (0, "b"), (2, "c")]
    assert run_shares(spark, fail, [], FACTS) == []


def test_an_error_of_ours_comes_back_as_it_was(spark: SparkSession) -> None:
    with pytest.raises(MasterSilent) as caught:
        run_tasks(spark, find_silence, ["a", "b"], FACTS, tasks=1)
    assert (caught.value.log, caught.value.offset) == ("rocketmq/b", 2)


def test_of_another_the_facts_are_said_and_its_last_line(spark: SparkSession) -> None:
    with pytest.raises(ReplicaError) as caught:
        run_tasks(spark, fail, ["a"], FACTS)
    found = caught.value.facts()
    said = [found[name] for name in ("problem", "log", "offset", "hint")]
    assert said == ["the job failed", "rocketmq/a", 7, "Run it again."]
    assert "ValueError: no a" in str(found["found"])


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOSPC, StorageUnreachable), (errno.EACCES, ReplicaError)])
def test_a_storage_that_refuses_a_task_for_now_is_named(
    spark: SparkSession, number: int, expected: type[ReplicaError]
) -> None:
    with pytest.raises(ReplicaError) as caught:
        run_tasks(spark, refuse, [number], FACTS)
    assert type(caught.value) is expected
    assert os.strerror(number) in str(caught.value.found)
