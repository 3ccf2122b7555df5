"""One small Spark session with Delta, for every test that needs one: logtwin's own, made for a test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.jars import storage_jars
from pipeline.session import build_session


def delta_session(folder: Path) -> SparkSession:
    """A local[2] Delta session whose warehouse and scratch space are in `folder`; it can reach S3 and Azure.

    What it needs for that comes last on its class path: at first place no class archive would fit it.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    properties = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    with pytest.MonkeyPatch.context() as launch:
        launch.setenv("SPARK_DIST_CLASSPATH", ":".join(map(str, [*storage_jars("s3a"), *storage_jars("abfs")])))
        return build_session(properties, name="logtwin tests")
