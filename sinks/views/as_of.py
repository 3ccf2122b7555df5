"""Show one log as of an offset, or as of a time of the master: `register_as_of`.

The table of records is read at the version of that moment. In other tables later rows are left out by the tables' own
columns: up to the commit of that version, or, for metadata, up to the time when the replica came to the offset. What
was current then is shown as current.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sinks.delta.spark_jobs import first_line
from sinks.spark_schemas import spark_schema
from sinks.tables import (
    EPOCHS,
    INCIDENTS,
    IS_CURRENT,
    KAFKA_LOG,
    KAFKA_REMOVED,
    KEY_VALUES,
    LEDGER,
    LOG,
    LOG_ID,
    QUARANTINE,
    REMOVED,
    SCHEMA_CHANGES,
    UNFIT,
    VALID_FROM,
    VALID_TO,
    TableSpec,
    log_table,
)
from sinks.values.incident import State
from sinks.values.ledger_row import BACKFILL
from sinks.views.past import AsOf, PastLog
from sinks.views.registration import frames, newest_versions, register_views
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset

_Rule = Callable[[DataFrame, AsOf], DataFrame]


def as_it_was(spec: TableSpec, frame: DataFrame, as_of: AsOf) -> DataFrame:
    """The rows of `frame`, which is table `spec`, that were there as of `as_of`; with its columns and comments."""
    ours = frame.where(sql.col(LOG_ID.name) == str(as_of.log_id))
    return _RULES.get(spec.name, _metadata)(ours, as_of).to(spark_schema(spec.schema))


def _log(rows: DataFrame, as_of: AsOf) -> DataFrame:
    # the first condition lets Delta skip files
    start = sql.col("offset")
    return rows.where((start < as_of.offset) & (start + sql.col("size") <= as_of.offset))


def _ledger(rows: DataFrame, as_of: AsOf) -> DataFrame:
    """Rows of the stream are selected by offset; a backfill or a retention may have come later than that version."""
    is_later = (sql.col("origin") == BACKFILL) & (sql.col("committed_at") > as_of.committed_at)
    deleted_at = sql.col("deleted_at")
    then = rows.where((sql.col("start") < as_of.offset) & ~is_later)
    return then.withColumn("deleted_at", sql.when(deleted_at <= as_of.committed_at, deleted_at))


def _incidents(rows: DataFrame, as_of: AsOf) -> DataFrame:
    had_ended = sql.coalesce(sql.col("ended_at") <= as_of.committed_at, sql.lit(False))
    then = rows.where(sql.col("detected_at") <= as_of.committed_at)
    return then.withColumns(
        {
            "state": sql.when(had_ended, sql.col("state")).otherwise(State.OPEN.value),
            "ended_at": sql.when(had_ended, sql.col("ended_at")),
            "note": sql.when(had_ended, sql.col("note")),
        }
    )


def _below(rows: DataFrame, as_of: AsOf) -> DataFrame:
    return rows.where(sql.col("offset") < as_of.offset)


def _until(column: str) -> _Rule:
    return lambda rows, as_of: rows.where(sql.col(column) <= as_of.committed_at)


def _key_values(rows: DataFrame, as_of: AsOf) -> DataFrame:
    """The table has only the newest value of a key. A query of it raises an error instead of showing newer values."""
    problem = f"dister_kv has no past: what {as_of.log_id} said of a key at {as_of.offset} is in the table log"
    return rows.where(sql.raise_error(sql.lit(problem)).isNull())


def _metadata(rows: DataFrame, as_of: AsOf) -> DataFrame:
    begin, end = sql.col(VALID_FROM.name), sql.col(VALID_TO.name)
    then = rows.where((begin <= as_of.reached_at) & (end.isNull() | (end > as_of.reached_at)))
    return then.withColumns({VALID_TO.name: sql.lit(None), IS_CURRENT.name: sql.lit(True)})


_RULES: Final[dict[str, _Rule]] = {
    LOG.name: _log,
    KAFKA_LOG.name: _below,
    LEDGER.name: _ledger,
    INCIDENTS.name: _incidents,
    QUARANTINE.name: _below,
    REMOVED.name: _until("removed_at"),
    KAFKA_REMOVED.name: _until("removed_at"),
    EPOCHS.name: _until("since"),
    KEY_VALUES.name: _key_values,
    SCHEMA_CHANGES.name: _until("changed_at"),
    UNFIT.name: _below,
}
"""The rule for each table; all other tables are metadata."""


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
