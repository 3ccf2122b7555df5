"""What a work beside Spark's Kafka source needs while it lasts: a session that has the source, and a real broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.ways import CODEC
from pipeline.kafka_broker import running_broker
from pipeline.session import build_session
from tests.peers.spark_kafka import add_connector

CORES = 2


@contextmanager
def running_session(folder: Path) -> Iterator[SparkSession]:
    """For both contestants. What its JVM says is in `folder` while it lasts."""
    log_file = folder / "spark.log"
    properties = {"spark.master": f"local[{CORES}]", "spark.driver.memory": "2g", **CODEC}
    spark = build_session(properties, name="bench", log_file=log_file)
    try:
        add_connector(spark)
        yield spark
    finally:
        spark.stop()
        log_file.unlink()


@contextmanager
def lone_broker(folder: Path) -> Iterator[str]:
    """Where it is, for ``bootstrap.servers``. Its store goes with it."""
    try:
        with running_broker(folder / "broker") as server:
            yield server
    finally:
        shutil.rmtree(folder / "broker", ignore_errors=True)
