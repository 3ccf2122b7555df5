"""The folder that holds a replica's tables: create missing tables, check existing ones, give their schemas to Spark.

`empty_table` and `empty_view` are SQL for tables that do not exist yet: their columns, without rows.
"""

from __future__ import annotations

import json
import logging
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from sinks.delta.commits import retrying
from sinks.delta.java_names import is_not_found, java_names
from sinks.delta.kernel import KernelConflict, KernelTable, Snapshot
from sinks.delta.spark_jobs import first_line
from sinks.storage.errors import failed_by
from sinks.storage.place import placed
from sinks.tables import LEDGER, LOG, LOG_LEFT_TO_MAINTAIN, TableSpec
from sources.errors import ConfigurationError, ReplicaError

_log = logging.getLogger(__name__)
_COMMITS_A_CHECKPOINT: Final = "20"


def absolute(warehouse: str) -> str:
    """Return `warehouse` in a form that tasks and driver both understand. Raises as `placed` does."""
    return str(placed(warehouse, "warehouse"))


def names_in(spark: SparkSession, place: str) -> set[str]:
    """The names of the folders in the warehouse `place`; none if it does not exist.

    One request replaces several for each table. Hadoop is asked, because every session can reach the place through it.
    Raises ReplicaError.
    """
    try:
        path = java_names(spark).org.apache.hadoop.fs.Path(place)
        found = path.getFileSystem(spark._jsc.hadoopConfiguration()).listStatus(path)
        return {str(one.getPath().getName()) for one in found if one.isDirectory()}
    except Py4JJavaError as error:
        if is_not_found(error, spark):
            return set()
        raise failed_by(error)(
            f"the warehouse {place} cannot be looked into",
            found=first_line(error),
            hint="Check that its storage can be reached and read.",
        ) from error


def ensure_tables(spark: SparkSession, warehouse: str, *more: TableSpec) -> None:
    """Create the tables that every replica has, and `more`, if they are missing, and check those that exist.

    Safe if several jobs start at once. Raises ConfigurationError if a table exists that is not ours.
    """
    for spec in dict.fromkeys((LOG, LEDGER, *more)):
        ensure_table(KernelTable(spark, spec.path(absolute(warehouse))), spec)


def ensure_table(table: KernelTable, spec: TableSpec) -> None:
    """Create the table, or check it if it exists. Raises ConfigurationError if it is not ours."""
    found = table.snapshot()
    if found is None:
        found = _create(table, spec)
    _check_columns(spec, table.path, StructType.fromJson(json.loads(found.schema_json())))
    _check_properties(spec, table.path, found.properties())
    leave_log_to_maintain(table)


def leave_log_to_maintain(table: KernelTable) -> None:
    """Turn off all clean-ups of the Delta log but ours, also for tables of older versions: they trust any checkpoint.

    Raises ReplicaError if others commit all the time, or the storage cannot be written.
    """

    def refused(found: str) -> ReplicaError:
        return ReplicaError(
            f"the properties of the table {table.path} cannot be changed",
            expected=f"to set {LOG_LEFT_TO_MAINTAIN}",
            found=found,
            hint="Others commit all the time; start again.",
        )

    for attempt in retrying(refused):
        with attempt:
            found = table.existing()
            if not LOG_LEFT_TO_MAINTAIN.items() <= found.properties().items():
                table.set_properties(found, LOG_LEFT_TO_MAINTAIN)
                _log.info("%s: the clean-up of its Delta log is left to logtwin maintain", table.path)


def _create(table: KernelTable, spec: TableSpec) -> Snapshot:
    try:
        table.create(spark_schema(spec.schema), _properties(table, spec), spec.clustering, spec.partitioning)
        problem = "it vanished right after it was made"
    except KernelConflict as conflict:
        # Another job has created it at the same moment: check it like any other.
        problem = str(conflict)
    found = table.snapshot()
    if found is None:
        raise ConfigurationError(f"the table {table.path} cannot be created", found=problem)
    return found


def _properties(table: KernelTable, spec: TableSpec) -> dict[str, str]:
    """The properties of a new table. Checkpoints are rarer on an object store: each makes two requests for each version
    since the one before, and twenty more."""
    seldom = {} if placed(table.path).local else {"delta.checkpointInterval": _COMMITS_A_CHECKPOINT}
    return spec.properties | seldom


def _check_columns(spec: TableSpec, path: str, found: StructType) -> None:
    there = {field.name: field.dataType.simpleString() for field in found}
    wanted = {field.name: field.dataType.simpleString() for field in spark_schema(spec.schema)}
    if list(there.items()) == list(wanted.items()):
        return
    missing = [f"{name} {kind}" for name, kind in wanted.items() if there.get(name) != kind]
    surplus = [f"{name} {kind}" for name, kind in there.items() if wanted.get(name) != kind]
    if missing:
        raise _not_ours(path, f"the columns {', '.join(missing)}", ", ".join(surplus) or "none of that name")
    if surplus:
        raise _not_ours(path, "no other columns than ours", ", ".join(surplus))
    raise _not_ours(path, f"the columns in the order {', '.join(wanted)}", ", ".join(there))


def _check_properties(spec: TableSpec, path: str, found: dict[str, str]) -> None:
    """Check the two properties that the replica depends on; others, such as retention, are the operator's choice."""
    if spec.append_only and found.get("delta.appendOnly") != "true":
        raise _not_ours(path, "the table property delta.appendOnly = true", found.get("delta.appendOnly", "none"))
    expiry = found.get("delta.setTransactionRetentionDuration")
    if expiry is not None:
        raise _not_ours(path, "the property delta.setTransactionRetentionDuration unset: positions expire", expiry)


def _not_ours(path: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"the table {path} is not one that this version of logtwin made",
        expected=expected,
        found=found,
        hint="Point warehouse at another folder, or move this table away.",
    )


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema, with the comment of every column."""
    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> StructField:
    kind = from_arrow_type(field.type, prefer_timestamp_ntz=False)
    metadata = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
    return StructField(field.name, kind, field.nullable, metadata)


def empty_table(spec: TableSpec) -> str:
    """A query with the columns of `spec`, and no rows."""
    columns = (
        f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in spark_schema(spec.schema)
    )
    return f"SELECT {', '.join(columns)} WHERE false"


def empty_view(spec: TableSpec) -> str:
    """The statement that creates an empty view for `spec` in the current schema, with all comments."""
    comments = {field.name: field.metadata["comment"] for field in spark_schema(spec.schema)}
    columns = ", ".join(f"`{name}` COMMENT {literal(comment)}" for name, comment in comments.items())
    return f"CREATE OR REPLACE VIEW {spec.name} ({columns})\nCOMMENT {literal(spec.comment)}\nAS\n{empty_table(spec)}"


def literal(text: str) -> str:
    """Quote `text` as a Spark SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
