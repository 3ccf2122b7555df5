"""Rows of a replica's small tables, read without Spark: of one version, the columns that a report asks for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sinks.delta.delta_log import newest
from sinks.delta.files import dataset_of
from sinks.storage.errors import failed_by
from sinks.tables import TableSpec
from sources.readable import instant


def rows_of(spec: TableSpec, place: str, *columns: str) -> pa.Table:
    """These columns of every row of a table that has no partitions; no rows where there is no table.

    Raises ReplicaError, StorageUnreachable.
    """
    path = spec.path(place)
    version = newest(path)
    try:
        names = [] if version is None else [one.path for one in version.files.values()]
        return dataset_of(path, names, spec.schema).to_table(columns=list(columns)).unify_dictionaries()
    except (OSError, pa.ArrowException) as error:
        raise unread(place, error) from error


def dicts_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows by the names of their columns. A time outside of the years 1 to 9999 is None."""
    columns = {name: _values(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if at_us is None else instant(at_us) for at_us in micros]


def unread(place: str, error: Exception) -> Exception:
    """What is raised where a table of the replica in `place` cannot be read."""
    return failed_by(error)(
        f"the replica in {place} cannot be read",
        found=error,
        hint="Check that its storage can be reached; logtwin verify finds files that are damaged or gone.",
    )
