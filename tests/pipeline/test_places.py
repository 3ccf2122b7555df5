"""A job whose warehouse is given as a URI of a local disk, as on a cluster."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from sources.errors import ConfigurationError
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.running import assert_complete, job_config, replicate_now


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("uri", ["", "file:", "file://", "file://localhost"])
def test_the_table_alone_says_where_a_log_goes_on_wherever_it_is(spark: SparkSession, tmp_path: Path, uri: str) -> None:
    log, lake = FaultyLog(tmp_path / "master"), tmp_path / "a lake"
    log.append(random.Random(1), 20)
    config = job_config(f"{uri}{lake}", path=str(log.path))
    replicate_now(spark, config)
    shutil.rmtree(lake / "log")
    shutil.rmtree(lake / "ledger")
    replicate_now(spark, config)  # the table is empty again, whatever another query has read
    assert_complete(spark, lake, log.data())
    assert {path.name for path in tmp_path.iterdir()} == {"a lake", "master"}


def test_a_place_that_nobody_can_open_is_said_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"^job\.toml: warehouse is not a place.*found s3n://lake/twin"):
        parse({"warehouse": "s3n://lake/twin"}, where="job.toml")
