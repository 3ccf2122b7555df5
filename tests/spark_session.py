"""One small Spark session with Delta, for every test that needs one: logtwin's own, made for a test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.session import build_session


def delta_session(folder: Path) -> SparkSession:
    """A local[2] Delta session whose warehouse and scratch space are in `folder`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    properties = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    return build_session(properties, name="logtwin tests")
