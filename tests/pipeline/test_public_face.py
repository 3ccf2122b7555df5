"""What other programs import: the package `logtwin`, from the wheel alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import logtwin
from pipeline.version import own_version
from tests.pipeline.standalone import bare_python
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import BROKER_A, MemoryMaster
from tests.truth import Fixture

PROGRAM = """
import sys
from logtwin import __version__, register, register_as_of, register_source
print(__version__, "pyspark" in sys.modules)
from logtwin import *
"""


def test_it_is_there_in_an_environment_of_its_own_and_imports_next_to_nothing(wheel: Path, tmp_path: Path) -> None:
    python = bare_python(tmp_path / "environment")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
    )
    done = subprocess.run([python, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [own_version(), "False"]


@pytest.mark.spark
def test_a_replica_a_past_and_the_data_source_are_known_by_a_call_each(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path
) -> None:
    opened(spark, tmp_path, MemoryMaster((100,) * 20))(ranges(0, 1000))
    session = spark.newSession()
    logtwin.register(session, str(tmp_path))
    assert session.table("log").count() == 10
    logtwin.register_source(spark)
    store = str(fixture_550.commitlog_path)
    records = spark.read.format("logtwin").option("id", "rocketmq/b").option("path", store).load()
    assert records.count() == len(fixture_550.rows)

    past = spark.newSession()
    logtwin.register_as_of(past, str(tmp_path), str(BROKER_A), 300)
    assert past.table("log").count() == 3
    with pytest.raises(ValueError, match="no log id"):
        logtwin.register_as_of(past, str(tmp_path), "broker-a", 300)
