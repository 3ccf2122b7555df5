"""Whether a column of integers can become double: only if no integer in it would lose a digit.

The Delta log has the bounds of the first columns of a file. Of the others, and of columns that are newer than the file,
it says nothing at all; there the file itself is asked. If it can, all files are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile, bounds
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import column_chunks, open_parquet
from sinks.delta.spark_jobs import JobFacts, run_each
from sinks.storage.errors import reported_as
from sinks.typed.columns import Column, table_spec
from sinks.typed.formats.scalars import EXACT
from sinks.typed.table import TypedTable, TypedView
from sinks.upkeep.compaction import Merge, Merging
from sources.offsets import Offset


def can_widen(column: str, files: Iterable[StoredFile], folder: str) -> bool:
    """Whether a double can represent each integer that `files` of the table in `folder` have in `column`.

    Raises ReplicaError if a file cannot be read.
    """
    unsaid = []
    for file in files:
        said = file.statistics()
        nulls = said.get("nullCount", {}).get(column)
        if nulls is None:
            unsaid.append(file.path)
        elif nulls != said.get("numRecords") and not _are_exact(*bounds(said, column)):
            return False
    return all(_holds_exact(column, path, folder) for path in unsaid)


def _are_exact(least: int | None, greatest: int | None) -> bool:
    """Whether all integers between these bounds are; not if the bounds are not known."""
    return least is not None and greatest is not None and -EXACT < least <= greatest < EXACT


def _holds_exact(column: str, path: str, folder: str) -> bool:
    unread = reported_as(
        f"a data file of the table in {folder} cannot be read",
        expected=f"the file {folder.rstrip('/')}/{path}, which the Delta log names",
        hint="Restore the file from a copy, or let logtwin tables rebuild make the table anew from the log.",
    )
    with unread, open_parquet(folder, path) as parquet:
        return column not in parquet.schema_arrow.names or all(
            one.num_values == one.statistics.null_count or _are_exact(one.statistics.min, one.statistics.max)
            for one in column_chunks(parquet, column)
        )


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
    return files, run_each(spark, merging, each, facts)
