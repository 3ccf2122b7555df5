"""Add columns that SQL computes from the others to rows in files that no commit names yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from sinks.delta.data_file import DataFile
from sinks.delta.files import FileOfRows, discard, in_columns
from sinks.delta.spark_jobs import JobFacts, first_line, job_failure
from sinks.tables import LOG_ID, TableSpec
from sinks.typed.columns import Column, table_spec
from sinks.typed.formats.scalars import are_in_years
from sinks.typed.step.report import REPORT_DDL, as_row, reported
from sinks.warehouse import spark_schema
from sources.errors import ConfigurationError, ReplicaError, across_processes


def with_computed(
    spark: SparkSession, table: str, columns: Sequence[Column], folder: str, files: Sequence[DataFile]
) -> list[DataFile]:
    """Replace `files`, which lack the computed columns, by files with all of `columns`, and return these.

    Raises ConfigurationError for an invalid expression, or the error that a task raised.
    """
    facts = JobFacts(
        problem=f"the Spark job that computes columns of the typed table {table} failed",
        log=None,
        hint="Nothing of the step was committed. If the expression fails for some rows, use try_cast.",
    )
    spec, plain = table_spec(table, columns), table_spec(table, [one for one in columns if one.sql is None])
    computed = {one.name: f"CAST(({one.sql}) AS {one.kind})" for one in columns if one.sql is not None}
    try:
        try:
            paths = [f"{folder.rstrip('/')}/{one.name}" for one in files]
            rows = spark.read.schema(spark_schema(plain.schema)).parquet(*paths)
            rows = rows.withColumns({name: sql.expr(text) for name, text in computed.items()}).select(
                *spec.schema.names
            )
            is_the_same_ever = cast(Any, rows)._jdf.queryExecution().analyzed().deterministic()
        except PySparkException as error:
            raise _wrong(table, first_line(error)) from error
        if not is_the_same_ever:
            raise _wrong(table, "one that gives another value each time: the table could not be made anew")
        writing = _Writing(spec, folder)
        return reported(rows.mapInArrow(lambda batches: writing(batches), REPORT_DDL).collect())
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


@dataclass(frozen=True, slots=True)
class _Writing:
    """The task function, picklable: writes rows of `spec` to a file in `folder`."""

    spec: TableSpec
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.spec.schema.remove_metadata()
        with across_processes(), FileOfRows(self.spec, self.folder) as file:
            file.write_all(in_years(in_columns(batch, schema)) for batch in batches)
            for made in file.finish():
                yield as_row(made)


def in_years(rows: pa.RecordBatch) -> pa.RecordBatch:
    """`rows`, none of whose times lies outside the years 1 to 9999. Raises ReplicaError, which names the row."""
    for field in rows.schema:
        is_date = pa.types.is_date32(field.type)
        if not (is_date or pa.types.is_timestamp(field.type)):
            continue
        is_one = are_in_years(rows[field.name])
        if is_one.false_count:
            row = is_one.index(False).as_py()
            number = rows[field.name].cast(pa.int32() if is_date else pa.int64())[row]
            raise ReplicaError(
                f"a computed column has a time that readers of Delta tables do not have: {field.name}",
                log=rows[LOG_ID.name][row].as_py(),
                offset=rows["offset"][row].as_py(),
                expected="a time in the years 1 to 9999, UTC",
                found=f"{number} {'days' if is_date else 'microseconds'} since 1970",
                hint="Mend the column's sql in compute, for instance with CASE WHEN, so that it is null there.",
            )
    return rows
