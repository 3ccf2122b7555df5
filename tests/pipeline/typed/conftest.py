"""A log, its replica, and typed tables of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.datasource import register
from tests.pipeline.typed.world import World, world_of


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    register(spark)
    with world_of(spark, tmp_path) as made:
        yield made
