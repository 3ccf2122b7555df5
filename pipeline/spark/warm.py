"""Writes the archive of classes that later sessions load (`pipeline.spark.jvm`)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.spark.jars import java, session_jars, spark_jars
from pipeline.spark.jvm import archive_file
from pipeline.spark.session import session_for, spark_log
from sinks.storage.place import placed
from sources.errors import ConfigurationError

_WRITTEN_WITHIN_S: Final = 600.0


def write_archive(config: Config, use: Callable[[SparkSession], object]) -> Path:
    """Write the archive for sessions of a configuration, unless there is one. Returns its file.

    It has the classes that `use` needs of a session, which ends. All of it is written or nothing. Raises
    ConfigurationError if Java does not write it, and what `session_for` raises.
    """
    jars = session_jars(placed(config.warehouse).scheme, config.jars)
    archive = archive_file(config.jars, java(), [*jars, *spark_jars()])
    if archive.exists():
        return archive
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=archive.parent) as work:
            new = Path(work) / archive.name
            spark = session_for(config, archive_to=new)
            use(spark)
            spark.stop()
            _see_java_end()
            new.rename(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(
            f"there is no archive of classes {archive}", found=error, hint=f"{spark_log()} has what Java said."
        ) from error
    return archive


def _see_java_end() -> None:
    """It writes the archive when it ends, which it does when its standard input is closed."""
    gateway = SparkContext._gateway
    if gateway is None or gateway.proc.stdin is None:
        raise AssertionError("this process has started a JVM")
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_WRITTEN_WITHIN_S)
