"""Show one log as of an offset, or as of a time of the master: `register_as_of`."""

from __future__ import annotations

from datetime import datetime

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinks.delta.spark_jobs import first_line
from sinks.tables import log_table
from sinks.views.past import AsOf, PastLog
from sinks.views.past_tables import as_it_was
from sinks.views.registration import frames, newest_versions, register_views
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset


def register_as_of(spark: SparkSession, warehouse: str, log_id: LogId, at: Offset | datetime) -> AsOf:
    """Register tables and views in a session as `register` does, for one log as of an offset or a time of the master.

    Table log has the records that end at or below the offset; the other tables say what they said then. Returns what
    the session shows from now on. Raises ReplicaError if there is no such log, if the replica has not come that far, or
    if it is not known whether it has.
    """
    place = absolute(warehouse)
    existing = newest_versions(spark, place)
    try:
        log = PastLog(spark, place, log_id)
        as_of = log.as_of(log.offset_at(at) if isinstance(at, datetime) else at)
        for spec, frame in frames(spark, place, existing, {log_table(as_of.log_id).name: as_of.version}):
            as_it_was(spec, frame, as_of).createOrReplaceTempView(spec.name)
        register_views(spark)
    except (PySparkException, Py4JError, OSError) as error:
        raise ReplicaError(
            "the replica cannot be read as it was",
            log=log_id,
            found=first_line(error),
            hint="Check that the tables' storage can be reached; maintenance may have run meanwhile: ask again.",
        ) from error
    return as_of
