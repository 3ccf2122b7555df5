"""One warehouse for the scenarios of a module, a log in it for each test: tables are made once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.dister.twin import Twin


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture
def twin(spark: SparkSession, lake: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Twin:
    """A leader without entries, and nothing of it in the warehouse."""
    folder = tmp_path / "leader"
    folder.mkdir()
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).removeprefix("test-").strip("-")
    return Twin(spark, folder, lake, name)
