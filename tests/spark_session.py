"""One small Spark session with Delta, for every test that needs one: logtwin's own, made for a test."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pipeline.spark.jars import session_jars
from pipeline.spark.session import build_session


def delta_session(folder: Path) -> SparkSession:
    """A local[2] Delta session whose warehouse and scratch space are in `folder`; it can reach S3 and Azure.

    What it needs for that comes last on its class path: at first place no class archive would fit it.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    properties = {
        "spark.master": "local[2]",
        # Delta keeps the state of ten thousand tables for an hour, and with each a session: tests have a few of their
        # own at a time, and hundreds in an hour. When these had filled the heap a third of it went to the collector.
        "spark.databricks.delta.delta.log.cacheSize": "20",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    with pytest.MonkeyPatch.context() as launch:
        launch.setenv("SPARK_DIST_CLASSPATH", ":".join(map(str, [*session_jars("s3a"), *session_jars("abfs")])))
        return build_session(properties, name="logtwin tests")


def gateway_port() -> int:
    """Where the JVM of this process listens."""
    gateway = SparkContext._gateway
    assert gateway is not None
    port: int = gateway.gateway_parameters.port
    return port


def forget_connection() -> None:
    """This thread's next call of the JVM gets a connection of its own.

    Who was interrupted in a call, by a test's time limit or Ctrl-C, has not read its answer: the next one would take it
    for its own, and so would each after that.
    """
    gateway = SparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if gateway is not None and connection is not None:
        with suppress(ValueError):
            gateway._gateway_client.deque.remove(connection)
        connection.close()
