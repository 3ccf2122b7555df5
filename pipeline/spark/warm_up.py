"""Spark's Python workers, started before there is anything to do for them.

The first task of a session waits for a process that imports pyarrow and this project, and the first query for classes
that the JVM has never run: seconds, which otherwise begin when the log has been claimed and master and producers wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def warm_up(spark: SparkSession) -> threading.Thread:
    """Begin, in a thread that ends by itself; whoever does not wait for it loses nothing. Never fails."""
    thread = threading.Thread(target=_run, args=(spark,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _run(spark: SparkSession) -> None:
    cores = spark.sparkContext.defaultParallelism
    try:
        spark.range(0, cores, 1, cores).mapInArrow(_unchanged, "id bigint").collect()
    except (PySparkException, Py4JError) as error:
        log.debug("no warm-up: %s", error)  # the job itself will meet whatever it is, and say it


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
