"""A reader of one small replica."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pipeline import config as configuration
from pipeline.sql.reader import Reader
from tests.pipeline.sql.small_replica import small_replica


@pytest.fixture(scope="session")
def reader(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """In a session of its own; what a test makes in it must not be in the way of others."""
    return Reader.opened(configuration.load(small_replica(tmp_path_factory.mktemp("reader"))), None)
