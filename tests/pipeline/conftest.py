"""Fixtures that several modules of this folder share."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.repair_bench import Bench


@pytest.fixture(scope="session")
def replicated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 120 kB in four files, replicated in five batches."""
    bench = Bench(spark, tmp_path_factory.mktemp("replicated"))
    bench.log.append(random.Random(1), 200)
    bench.replicate()
    return bench.folder


@pytest.fixture
def bench(spark: SparkSession, replicated: Path, tmp_path: Path) -> Bench:
    shutil.copytree(replicated, tmp_path, dirs_exist_ok=True)
    return Bench(spark, tmp_path)
