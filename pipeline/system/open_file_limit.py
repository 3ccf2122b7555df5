"""Prepares a process to have more than a thousand files open, as a job of many logs has: four for each log."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # a system that allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def prepare_for_many_files(spark: SparkSession) -> None:
    """Raise the limit of open files, and start py4j's callback server. Call it once, before a job opens files.

    Spark calls `foreachBatch` through that server, which would otherwise start with the first stream. It waits with
    select(2), which cannot handle file descriptors above 1,023: with such a one the server ends silently, and no batch
    ever comes.
    """
    from pyspark.java_gateway import ensure_callback_server_started  # other users of this module have no Spark

    allow_many_files()
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
