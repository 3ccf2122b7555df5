"""The public interface of logtwin for other programs.

::

    import logtwin

    logtwin.register_source(spark)  # the data source "logtwin": the records of a master log
    logtwin.register(spark, "s3a://lake/logtwin")  # the tables and views of a replica, by name
    logtwin.register_as_of(spark, "s3a://lake/logtwin", "rocketmq/broker-a", 3_793_766)  # one log as it was

Everything else belongs to the command line (``logtwin --help``) and may move between versions.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pipeline.version import own_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.views.as_of import AsOf

__all__ = ["__version__", "register", "register_as_of", "register_source"]

__version__ = own_version()


def register_source(spark: SparkSession) -> None:
    """Make the data source ``logtwin`` known to `spark`, for ``spark.read`` and ``spark.readStream``."""
    from sources.datasource import register as register_data_source

    register_data_source(spark)


def register(spark: SparkSession, warehouse: str, schema: str | None = None) -> None:
    """Make all tables and views of the replica in `warehouse` known to `spark`.

    They become temporary views of the session or, with `schema`, tables and views of that schema in its catalog; see
    `sinks.views.registration.register`. Raises ReplicaError if there is no replica, ConfigurationError if
    something that is not logtwin's has one of the names in the schema.
    """
    from sinks.views.registration import register as register_replica

    register_replica(spark, warehouse, schema)


def register_as_of(spark: SparkSession, warehouse: str, log_id: str, at: int | datetime) -> AsOf:
    """Make tables and views of one log, as it was `at` an offset or a time of its master, known to `spark`.

    Returns what the session shows from now on. Raises ReplicaError if there is no such log, or if it has not come that
    far; ValueError if `log_id` is not a log id.
    """
    from sinks.views.as_of import register_as_of as register_past
    from sources.offsets import LogId, Offset

    return register_past(spark, warehouse, LogId.parse(log_id), at if isinstance(at, datetime) else Offset(at))
