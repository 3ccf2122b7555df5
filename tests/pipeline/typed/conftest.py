"""A log, its replica, and typed tables of it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.datasource import register
from tests.pipeline.typed.in_process import world_in_process
from tests.pipeline.typed.world import InFiles, Served, world_of


@pytest.fixture
def world(tmp_path: Path) -> Iterator[InFiles]:
    with world_in_process(tmp_path) as made:
        yield made


@pytest.fixture
def by_spark(spark: SparkSession, tmp_path: Path) -> Iterator[InFiles]:
    """Its tasks and queries are Spark's."""
    with closing(InFiles(spark, tmp_path)) as made:
        yield made


@pytest.fixture
def served(spark: SparkSession, tmp_path: Path) -> Iterator[Served]:
    """Replicated by a job from a master."""
    register(spark)
    with world_of(spark, tmp_path) as made:
        yield made
