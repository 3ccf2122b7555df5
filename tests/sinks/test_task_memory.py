"""sinks.task_memory: what a worker of Spark's holds behind a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sinks.task_memory import GivingBack, Task

ARRAY_BYTES, ARRAYS = 8 << 20, 5


def held_bytes(pid: int) -> int:
    held: int = psutil.Process(pid).memory_full_info().uss
    return held


def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Makes arrays and drops them: one row of whose memory it was, and how much that process held before and with."""
    list(batches)
    pa.default_memory_pool().release_unused()  # of other tests' tasks
    pid = psutil.Process().pid
    before = held_bytes(pid)
    buffers = [pa.allocate_buffer(ARRAY_BYTES) for _ in range(ARRAYS)]
    for buffer in buffers:
        np.frombuffer(buffer, np.uint8)[:] = 1
    row = pa.RecordBatch.from_pydict({"pid": [pid], "before": [before], "most": [held_bytes(pid)]})
    del buffer, buffers
    yield row


def behind(spark: SparkSession, task: Task) -> tuple[int, int]:
    """Bytes that a worker held with all arrays, and when `task` had ended, beside what it had before."""
    [row] = spark.range(1, numPartitions=1).mapInArrow(task, "pid long, before long, most long").collect()
    return row.most - row.before, held_bytes(row.pid) - row.before


@pytest.mark.spark
def test_a_worker_that_has_ended_its_task_holds_no_memory_of_it(spark: SparkSession) -> None:
    most, rest = behind(spark, GivingBack(work))
    assert most > ARRAYS * ARRAY_BYTES * 0.9
    assert rest < ARRAY_BYTES


@pytest.mark.spark
def test_which_it_would_otherwise_keep(spark: SparkSession) -> None:
    _, rest = behind(spark, work)
    assert rest > ARRAYS * ARRAY_BYTES * 0.9
