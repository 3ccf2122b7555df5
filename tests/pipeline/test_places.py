"""A job whose warehouse is given as a URI of a local disk, as on a cluster."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from sources.errors import ConfigurationError
from tests.pipeline.running import assert_complete, replicate_now
from tests.truth import Fixture


@pytest.mark.spark
@pytest.mark.parametrize("warehouse", ["{}/a lake", "file:{}/a lake", "file://{}/a lake", "file://localhost{}/a lake"])
def test_the_table_alone_says_where_a_log_goes_on_wherever_it_is(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path, warehouse: str
) -> None:
    logs = [{"id": "rocketmq/test", "path": str(fixture_550.commitlog_path)}]
    config = parse({"warehouse": warehouse.format(tmp_path), "logs": logs}, where="test")
    lake = tmp_path / "a lake"
    replicate_now(spark, config)
    shutil.rmtree(lake / "log")
    shutil.rmtree(lake / "ledger")
    replicate_now(spark, config)  # the table is empty again, whatever another query has read
    assert_complete(spark, lake, fixture_550.log)
    assert [path.name for path in tmp_path.iterdir()] == ["a lake"]


def test_a_place_that_nobody_can_open_is_said_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"^job\.toml: warehouse is not a place.*found s3n://lake/twin"):
        parse({"warehouse": "s3n://lake/twin"}, where="job.toml")
