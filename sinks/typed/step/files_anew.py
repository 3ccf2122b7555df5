"""Write files of a typed table anew: all of them with other columns, or those with rows that newer ones replace."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import discard
from sinks.delta.spark_jobs import JobFacts, run_tasks
from sinks.typed.columns import Column, table_spec
from sinks.typed.step.upsert import upserted
from sinks.typed.table import TypedTable, TypedView
from sinks.upkeep.merge import Merge, Merging, merged_file
from sources.offsets import Offset

Rewritten = tuple[list[StoredFile], list[DataFile]]
"""Files of the table, and what takes their place."""


def files_rewritten(spark: SparkSession, table: TypedTable, view: TypedView, columns: Sequence[Column]) -> Rewritten:
    """Rewrite every file of the table with `columns`. Raises what a task raised, or ReplicaError."""
    files = table.files(view)
    facts = JobFacts(
        problem=f"the Spark job that widens columns of the typed table {table.name} failed",
        log=None,
        hint="Nothing was committed; a running job does it again.",
    )
    merging = Merging(table_spec(table.name, columns), table.path, {})
    each = [Merge(Offset(0), file.statistics()["numRecords"], [file.path]) for file in files]
    return files, [merged_file(made) for made in run_tasks(spark, merging, each, facts)]


def files_by_key(
    spark: SparkSession,
    table: TypedTable,
    view: TypedView,
    columns: Sequence[Column],
    key: Sequence[str],
    new: Sequence[DataFile],
    rewritten: Rewritten | None,
) -> tuple[list[StoredFile], list[DataFile], list[DataFile]]:
    """Keep the newest row of each key. Returns files to remove, rewritten files to keep, and new files.

    Raises what a task raised, or ReplicaError.
    """
    spec = table_spec(table.name, columns)
    stored, kept = rewritten or (table.files(view), [])
    there = {one.path: one.statistics()["numRecords"] for one in stored} if rewritten is None else _rows_in(kept)
    found = upserted(spark, spec, table.path, key, there, _rows_in(new))
    discard(table.path, found.replaced)
    come = [*(one for one in new if one.name not in found.replaced), *found.written]
    if rewritten is None:
        return [one for one in stored if one.path in found.gone], [], come
    return stored, [one for one in kept if one.name not in found.gone], come


def _rows_in(files: Sequence[DataFile]) -> dict[str, int]:
    return {one.name: one.records for one in files}
