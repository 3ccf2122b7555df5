"""One warehouse for the scenarios of a module, a log in it for each test: tables are made once.

Jobs run in this process, without Spark; `spark_twin` is for the few that show the same with it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.dister.twin import Twin
from tests.pipeline.group_in_process import use_plain


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """What stands for one, also in jobs."""
    return use_plain(monkeypatch)


@pytest.fixture
def twin(session: SparkSession, lake: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Twin:
    """A leader without entries, and nothing of it in the warehouse."""
    return twin_of(session, lake, tmp_path, request.node.name)


@pytest.fixture
def spark_twin(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Twin:
    return twin_of(spark, tmp_path / "lake", tmp_path, request.node.name)


def twin_of(spark: SparkSession, lake: Path, folder: Path, test: str) -> Twin:
    (folder / "leader").mkdir()
    name = re.sub(r"[^a-z0-9]+", "-", test.lower()).removeprefix("test-").strip("-")
    return Twin(spark, folder / "leader", lake, name)
