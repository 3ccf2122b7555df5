"""A worker of Spark has what tasks import before its first task, and is told what to do without delay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable

import psutil
import pytest
from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_worker_has_imported_what_tasks_need(spark: SparkSession) -> None:
    wanted = ("numba", "pandas", "pyarrow", "sources.datasource", "sources.rocketmq.loops", "sinks.tasks")
    missing = spark.sparkContext.parallelize([wanted], 1).map(lambda names: [n for n in names if n not in sys.modules])
    assert missing.collect() == [[]]


@pytest.mark.spark
def test_a_worker_does_not_collect_what_was_imported_for_it(spark: SparkSession) -> None:
    def kept_and_looked_at(_: Iterable[int]) -> list[tuple[int, int]]:
        return [(gc.get_freeze_count(), len(gc.get_objects()))]

    [(kept, looked_at)] = spark.sparkContext.parallelize([0], 1).mapPartitions(kept_and_looked_at).collect()
    assert kept > 10 * looked_at


@pytest.mark.spark
def test_no_connection_between_spark_and_a_worker_waits_for_late_acknowledgements(spark: SparkSession) -> None:
    """As those over TCP do, 40 ms."""

    def sockets(_: Iterable[int]) -> list[tuple[int, int]]:
        process = psutil.Process()
        return [(len(process.net_connections("unix")), len(process.net_connections("tcp")))]

    [(local, over_tcp)] = spark.sparkContext.parallelize([0], 1).mapPartitions(sockets).collect()
    assert local > 0
    assert over_tcp == 0
