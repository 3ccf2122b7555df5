"""Fixtures that several modules of this folder, and of those below it, share."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config import configuration
from pipeline.sql.reader import Reader
from tests.pipeline import group_in_process
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.repair_bench import Bench
from tests.pipeline.sql.small_replica import small_replica
from tests.pipeline.standalone import build_wheel


@pytest.fixture(scope="session")
def replicated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bench = Bench(spark, tmp_path_factory.mktemp("replicated"))
    bench.log.append(random.Random(1), 200)
    bench.replicate()
    return bench.folder


@pytest.fixture
def bench(spark: SparkSession, replicated: Path, tmp_path: Path) -> Bench:
    shutil.copytree(replicated, tmp_path, dirs_exist_ok=True)
    return Bench(spark, tmp_path)


@pytest.fixture
def operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(tmp_path, capsys)


@pytest.fixture(scope="session")
def reader(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Of one small replica, in a session of its own; what a test makes in it must not be in the way of others."""
    return Reader.opened(configuration.load(small_replica(tmp_path_factory.mktemp("reader"))), None)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=["plain", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.nightly])])
def session(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """To replicate and to heal with: without Spark, in this process; and in the night with it.

    What stands in for Spark does so for the whole module: a test of real Spark that replicates has another one.
    """
    with pytest.MonkeyPatch.context() as patch:
        plain: bool = request.param == "plain"
        yield group_in_process.use_plain(patch) if plain else request.getfixturevalue("spark")
