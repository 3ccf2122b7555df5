"""Starts Spark's Python workers before they are needed.

The first task of a session waits seconds for a process that imports pyarrow and this project. Otherwise that would
happen when the log has been claimed, and the master and its producers wait.

The warm-up runs tasks of an RDD, as batches do: Spark has one daemon for those, and another for the tasks of queries.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from pyspark.sql import SparkSession

from sinks.delta.spark_jobs import JobFacts, run_tasks
from sources.errors import LogtwinError

log = logging.getLogger(__name__)

_FACTS: Final = JobFacts(
    problem="Python workers cannot be started",
    log="every log",
    hint="The first batch will say what is in its way.",
)


def warm_up(spark: SparkSession) -> threading.Thread:
    """Start the warm-up in a thread, which ends by itself and need not be waited for. Never fails."""
    thread = threading.Thread(target=_run, args=(spark,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _run(spark: SparkSession) -> None:
    try:
        run_tasks(spark, list, range(spark.sparkContext.defaultParallelism), _FACTS)
    except LogtwinError as error:
        log.debug("no warm-up: %s", error)  # the job itself will meet the error, and report it
