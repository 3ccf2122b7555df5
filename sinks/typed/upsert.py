"""One row a key: which of several it is, and which files have to be written anew for it.

In one log the message with the higher offset is the newer one, whatever queue it is in; of messages in several logs the
one that was stored later, and of two that were stored in the same moment that of the log whose id is the greater. What
is older than the row that is there changes nothing, so a hole that is filled late does no harm.

The new rows are in files already, which no commit names (`sinks/typed/parsing.py`). Files of the table that have one of
their keys are read, and written anew with the newest of each; the others are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from sinks.files import DataFile
from sinks.spark_jobs import JobFacts, job_failure
from sinks.tables import TableSpec
from sinks.typed.through_spark import rows_in, written

_FILE = "_file"
_ROWS_A_TASK = 1_000_000


def upserted(
    spark: SparkSession,
    spec: TableSpec,
    folder: str,
    key: Sequence[str],
    there: Mapping[str, int],
    new: Mapping[str, int],
) -> tuple[set[str], list[DataFile]]:
    """Of the files that are `there` those to be removed, and those that take the place of these and of `new`.

    Files come by their names, with how many rows they have. Raises what a task raised, or ReplicaError.
    """
    facts = JobFacts(
        problem=f"the Spark job that brings rows of {spec.name} by their key failed",
        log=None,
        hint="Nothing of the step was committed; a running job does it again.",
    )
    try:
        come = _newest(rows_in(spark, spec, folder, new), key)
        touched = _touched(spark, spec, folder, key, there, come)
        rows = come
        if touched:
            rows = _newest(come.unionByName(rows_in(spark, spec, folder, touched)), key)
        records = sum(new.values()) + sum(there[name] for name in touched)
        return touched, written(rows.repartition(1 + records // _ROWS_A_TASK), spec, folder)
    except (PySparkException, Py4JError) as error:
        raise job_failure(error, facts) from error


def _touched(
    spark: SparkSession, spec: TableSpec, folder: str, key: Sequence[str], there: Iterable[str], come: DataFrame
) -> set[str]:
    """Those that have a key of the rows that come."""
    if not there:
        return set()
    name = sql.element_at(sql.split(sql.col("_metadata.file_path"), "/"), -1).alias(_FILE)
    keys = rows_in(spark, spec, folder, there).select(*key, name)
    found = keys.join(sql.broadcast(come.select(*key)), list(key), "left_semi").select(_FILE).distinct().collect()
    return {row[_FILE] for row in found}


def _newest(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The newest row of each key."""
    in_log = Window.partitionBy(*key, "log_id").orderBy(sql.desc("offset"), sql.desc("batch_index"))
    of_key = Window.partitionBy(*key).orderBy(sql.desc("stored_at"), sql.desc("log_id"))
    one_a_log = rows.withColumn("_number", sql.row_number().over(in_log)).where("_number = 1")
    return one_a_log.withColumn("_number", sql.row_number().over(of_key)).where("_number = 1").drop("_number")
