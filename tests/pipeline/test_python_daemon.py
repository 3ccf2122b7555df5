"""A worker of Spark has what tasks import before its first task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_worker_has_imported_what_tasks_need(spark: SparkSession) -> None:
    wanted = ("pandas", "pyarrow", "sources.datasource", "sinks.tasks")
    missing = spark.sparkContext.parallelize([wanted], 1).map(lambda names: [n for n in names if n not in sys.modules])
    assert missing.collect() == [[]]


@pytest.mark.spark
def test_a_worker_does_not_collect_what_was_imported_for_it(spark: SparkSession) -> None:
    def kept_and_looked_at(_: Iterable[int]) -> list[tuple[int, int]]:
        return [(gc.get_freeze_count(), len(gc.get_objects()))]

    [(kept, looked_at)] = spark.sparkContext.parallelize([0], 1).mapPartitions(kept_and_looked_at).collect()
    assert kept > 10 * looked_at
