"""Spark's workers have what tasks import before their first task, are told what to do without delay, and are few."""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from sources.datasource import register
from tests import truth
from tests.pipeline.python_workers import workers
from tests.pipeline.running import job_config, replicate_now

CORES = 2  # of the session


@pytest.mark.spark
def test_a_worker_has_imported_what_tasks_need(spark: SparkSession) -> None:
    rocketmq = "sources.rocketmq.columns"
    wanted = ["numba", "pandas", "pyarrow", "sources.datasource", f"{rocketmq}.body_crcs", f"{rocketmq}.loops"]
    wanted += ["sinks.delta.spark_jobs", "sinks.batch.tasks"]
    missing = spark.sparkContext.parallelize([wanted], 1).map(lambda names: [n for n in names if n not in sys.modules])
    assert missing.collect() == [[]]


@pytest.mark.spark
@pytest.mark.usefixtures("own_workers")  # others look at what earlier tasks have left in them
def test_imported_objects_are_frozen_for_the_collector(spark: SparkSession) -> None:
    def kept_and_looked_at(_: Iterable[int]) -> list[tuple[int, int]]:
        return [(gc.get_freeze_count(), len(gc.get_objects()))]

    [(kept, looked_at)] = spark.sparkContext.parallelize([0], 1).mapPartitions(kept_and_looked_at).collect()
    assert kept > 10 * looked_at


@pytest.mark.spark
@pytest.mark.usefixtures("own_workers")  # others may keep connections to brokers and object stores
def test_workers_are_connected_by_unix_sockets(spark: SparkSession) -> None:
    """As those over TCP do, 40 ms."""

    def sockets(_: Iterable[int]) -> list[tuple[int, int]]:
        process = psutil.Process()
        return [(len(process.net_connections("unix")), len(process.net_connections("tcp")))]

    [(local, over_tcp)] = spark.sparkContext.parallelize([0], 1).mapPartitions(sockets).collect()
    assert local > 0
    assert over_tcp == 0


@pytest.fixture
def own_workers(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], list[psutil.Process]]]:
    """Workers that no other test has, by the environment they are asked for with; those there are."""
    environment = spark.sparkContext.environment
    environment["LOGTWIN_TEST"] = str(tmp_path)
    yield lambda: [process for process in workers() if process.environ().get("LOGTWIN_TEST") == str(tmp_path)]
    del environment["LOGTWIN_TEST"]
    register(spark)  # which keeps the environment, too


@pytest.mark.spark
def test_a_core_has_one_worker(
    spark: SparkSession, tmp_path: Path, fixture_550: truth.Fixture, own_workers: Callable[[], list[psutil.Process]]
) -> None:
    """And not one that reads what is to be done beside one that does it: by turns either, both would take memory."""
    config = job_config(tmp_path, path=str(fixture_550.commitlog_path), split_bytes=500_000)
    replicate_now(spark, config)
    assert 1 <= len(own_workers()) <= CORES
