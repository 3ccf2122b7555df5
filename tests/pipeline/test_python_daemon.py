"""A worker of Spark has what tasks import before its first task."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_worker_has_imported_what_tasks_need(spark: SparkSession) -> None:
    wanted = ("pyarrow", "sources.datasource", "sinks.tasks")
    missing = spark.sparkContext.parallelize([wanted], 1).map(lambda names: [n for n in names if n not in sys.modules])
    assert missing.collect() == [[]]
