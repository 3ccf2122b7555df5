"""Columns that SQL computes of the others, for rows that are in files already, which no commit names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from sinks.files import DataFile, discard
from sinks.spark_jobs import JobFacts, first_line, job_failure
from sinks.typed.columns import Column, table_spec
from sinks.typed.through_spark import rows_in, written
from sources.errors import ConfigurationError


def with_computed(
    spark: SparkSession, table: str, columns: Sequence[Column], folder: str, files: Sequence[DataFile]
) -> list[DataFile]:
    """Files with all of `columns`, in the place of `files`, which have those that are not computed.

    Raises ConfigurationError for an expression that is none over the others, and what a task raised.
    """
    facts = JobFacts(
        problem=f"the Spark job that computes columns of the typed table {table} failed",
        log=None,
        hint="Nothing of the step was committed. An expression that fails for some rows says so here: see try_cast.",
    )
    spec, plain = table_spec(table, columns), table_spec(table, [one for one in columns if one.sql is None])
    computed = {one.name: f"CAST(({one.sql}) AS {one.kind})" for one in columns if one.sql is not None}
    try:
        try:
            rows = rows_in(spark, plain, folder, [one.name for one in files])
            rows = rows.withColumns({name: sql.expr(text) for name, text in computed.items()}).select(
                *spec.schema.names
            )
            is_the_same_ever = cast(Any, rows)._jdf.queryExecution().analyzed().deterministic()
        except PySparkException as error:
            raise _wrong(table, first_line(error)) from error
        if not is_the_same_ever:
            raise _wrong(table, "one that gives another value each time: the table could not be made anew")
        return written(rows, spec, folder)
    except (PySparkException, Py4JError) as error:
        raise job_failure(error, facts) from error
    finally:
        discard(folder, [one.name for one in files])


def _wrong(table: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"the computed columns of the typed table {table} cannot be computed",
        expected="SQL expressions over its other columns",
        found=found,
        hint="Look at compute in its [[tables]].",
    )
