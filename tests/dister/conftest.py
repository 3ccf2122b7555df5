"""A warehouse for each scenario. Jobs run in this process, without Spark; `spark_twin` is for one that has it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.dister.twin import Twin
from tests.pipeline.group_in_process import use_plain


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """What stands for one, also in jobs."""
    return use_plain(monkeypatch)


@pytest.fixture
def twin(session: SparkSession, tmp_path: Path) -> Twin:
    """A leader without entries, and an empty warehouse."""
    return twin_of(session, tmp_path)


@pytest.fixture
def spark_twin(spark: SparkSession, tmp_path: Path) -> Twin:
    return twin_of(spark, tmp_path)


def twin_of(spark: SparkSession, folder: Path) -> Twin:
    (folder / "leader").mkdir()
    return Twin(spark, folder / "leader", folder / "lake", "group")
