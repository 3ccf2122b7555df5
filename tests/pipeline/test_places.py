"""A job whose warehouse and checkpoints are given as URIs of a local disk, as on a cluster."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config import parse
from sources.errors import ConfigurationError
from tests.pipeline.running import assert_complete, replicate_now
from tests.truth import Fixture


@pytest.mark.spark
@pytest.mark.parametrize(
    ("warehouse", "checkpoints"),
    [("{}/a lake", "file:{}/marks"), ("file://{}/a lake", None), ("file://localhost{}/a lake", "file://{}/marks")],
)
def test_a_checkpoint_that_disagrees_is_moved_aside_wherever_it_is(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path, warehouse: str, checkpoints: str | None
) -> None:
    given: dict[str, object] = {"warehouse": warehouse.format(tmp_path)}
    if checkpoints is not None:
        given["checkpoints"] = checkpoints.format(tmp_path)
    config = parse(given | {"logs": [{"id": "rocketmq/test", "path": str(fixture_550.commitlog_path)}]}, where="test")
    lake = tmp_path / "a lake"
    replicate_now(spark, config)
    shutil.rmtree(lake / "log")
    shutil.rmtree(lake / "ledger")
    replicate_now(spark, config)  # the table is empty again, the checkpoint is at the end
    assert_complete(spark, lake, fixture_550.log)
    marks = lake / "_checkpoints" if checkpoints is None else tmp_path / "marks"
    assert len(list((marks / "rocketmq").glob("test.disagreed-*"))) == 1


@pytest.mark.parametrize("key", ["warehouse", "checkpoints"])
def test_a_place_that_nobody_can_open_is_said_at_the_start(key: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^job\.toml: {key} is not a place.*found s3n://lake/twin"):
        parse({key: "s3n://lake/twin"}, where="job.toml")
