"""Spark's JVM has ended under a process that still needs it: killed, or out of memory."""

from __future__ import annotations

import sys
from subprocess import TimeoutExpired
from typing import Final

from pipeline.system.cache import cache_folder
from sources.errors import ReplicaError

_ENDS_WITHIN_S: Final = 2.0


def spark_ended(code: int) -> ReplicaError:
    return ReplicaError(
        "Spark has ended",
        found=f"exit code {code}",
        hint=f"{cache_folder() / 'spark.log'} has its last words; spark.driver.memory below [spark] gives it more than "
        "1g. Start it again: what is committed stays, and it goes on from there.",
    )


def ended_behind(error: BaseException) -> ReplicaError | None:
    """What is behind `error`, if the JVM of this process has ended: the calls of it fail in many ways; else None."""
    spark = sys.modules.get("pyspark.core.context")  # a process without it has no JVM
    gateway = None if spark is None else spark.SparkContext._gateway
    java = None if gateway is None else gateway.proc
    protocol = sys.modules.get("py4j.protocol")
    if java is None or protocol is None or not isinstance(error, protocol.Py4JError | ConnectionError):
        return None
    try:
        code = java.wait(_ENDS_WITHIN_S)  # its socket closes before it is gone
    except TimeoutExpired:
        return None
    return spark_ended(code)
