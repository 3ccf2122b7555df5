"""Spark's Python workers, started before there is anything to do for them.

The first task of a session waits for a process that imports pyarrow and this project: seconds, which otherwise begin
when the log has been claimed, and master and producers wait.

It is an RDD's task, as a batch's are: Spark keeps a daemon for those, and another one for the tasks of queries.
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
    """Begin, in a thread that ends by itself; whoever does not wait for it loses nothing. Never fails."""
    thread = threading.Thread(target=_run, args=(spark,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _run(spark: SparkSession) -> None:
    try:
        run_tasks(spark, list, range(spark.sparkContext.defaultParallelism), _FACTS)
    except LogtwinError as error:
        log.debug("no warm-up: %s", error)  # the job itself will meet whatever it is, and say it
