"""Make a replica's tables and views known to a Spark session by their names: `register`.

Tables that do not exist yet (no loss so far, no broker with such metadata) are there all the same, without rows,
so that every query works on every replica.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from sinks.kernel import KernelTable
from sinks.tables import KEY_VALUES, LEDGER, LOG, LOSS_TABLES, METADATA_TABLES, TableSpec, spark_schema
from sinks.views.definition import VIEWS, view
from sinks.warehouse import absolute
from sources.errors import ReplicaError

TABLES = (LOG, LEDGER, *LOSS_TABLES, KEY_VALUES, *METADATA_TABLES)
"""Every table that a replica may have, in the order in which people want to see them."""


def register(spark: SparkSession, warehouse: str, *, schema: str | None = None) -> None:
    """Tables and views of the replica in `warehouse`, by name, in `spark`.

    As temporary views of the session; with `schema`, ``catalog.schema`` or ``schema``, as external tables and views of
    that schema in the session's catalog, where others find them too; it is created if need be. What is there from
    before is replaced. A query sees each table's last commit at its start.

    Raises ReplicaError where there is no replica.
    """
    place = absolute(warehouse)
    if KernelTable(spark, LOG.path(place)).snapshot() is None:
        raise ReplicaError(
            f"no replica in {place}",
            expected=f"a Delta table in {LOG.path(place)}",
            found="none",
            hint="See warehouse in the configuration; logtwin replicate makes the tables.",
        )
    for spec in TABLES:
        exists = KernelTable(spark, spec.path(place)).snapshot() is not None
        spark.sql(_temporary(spec, place) if exists else _empty(spec))
    for name in VIEWS:
        spark.sql(view(name).created(temporary=True))


def _temporary(spec: TableSpec, place: str) -> str:
    return f"CREATE OR REPLACE TEMPORARY VIEW {spec.name} AS SELECT * FROM delta.`{spec.path(place)}`"


def _empty(spec: TableSpec) -> str:
    columns = ", ".join(
        f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in spark_schema(spec.schema)
    )
    return f"CREATE OR REPLACE TEMPORARY VIEW {spec.name} AS SELECT {columns} WHERE false"
