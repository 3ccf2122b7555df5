"""What has to be done before a process has a thousand files open, as a job of many logs has: four a log."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def allow_many_files() -> None:
    """Let as many be open in this process as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # a system that allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def prepare_for_many_files(spark: SparkSession) -> None:
    """Once, before a job opens any. Let as many be open as the system allows; and be there for Spark's batches.

    Who waits for Spark to call `foreachBatch` is py4j's, begins with the first stream, and waits by select(2), which
    knows no file above the 1,023rd: with such a one it ended without a word, and no batch ever came.
    """
    from pyspark.java_gateway import ensure_callback_server_started  # others here have no Spark

    allow_many_files()
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
