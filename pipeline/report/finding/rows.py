"""Rows of a replica's small tables, read without Spark: of one version, the columns that a report asks for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds

from sinks.delta.delta_log import LoggedVersion, newest
from sinks.storage.errors import failed_by
from sinks.storage.place import open_folder
from sinks.tables import TableSpec


def rows_of(spec: TableSpec, place: str, *columns: str) -> pa.Table:
    """These columns of every row of a table that has no partitions; no rows where there is no table.

    Raises ReplicaError, StorageUnreachable.
    """
    path = spec.path(place)
    version = newest(path)
    try:
        return _files(spec, path, version).to_table(columns=list(columns)).unify_dictionaries()
    except (OSError, pa.ArrowException) as error:
        raise unread(place, error) from error


def _files(spec: TableSpec, path: str, version: LoggedVersion | None) -> ds.Dataset:
    schema = spec.schema.remove_metadata()
    if version is None or not version.files:
        return ds.dataset(schema.empty_table())
    filesystem, folder = open_folder(path)
    paths = [f"{folder.rstrip('/')}/{one.path}" for one in version.files.values()]
    # Spark may have written timestamps as INT96
    parquet = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    return ds.dataset(paths, schema=schema, format=parquet, filesystem=filesystem)


def unread(place: str, error: Exception) -> Exception:
    """What is raised where a table of the replica in `place` cannot be read."""
    return failed_by(error)(
        f"the replica in {place} cannot be read",
        found=error,
        hint="Check that its storage can be reached; logtwin verify finds files that are damaged or gone.",
    )
