"""Register a replica's tables and views in a Spark session by their names: `register`.

Tables that do not exist yet (no loss so far, no broker with such metadata) are registered without rows, so that every
query works on every replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sinks.delta.spark_jobs import first_line
from sinks.spark_schemas import empty_table, spark_schema
from sinks.storage.check import check_one_place
from sinks.storage.errors import failed_by
from sinks.tables import KAFKA_LOG, LOG, TABLES, TableSpec
from sinks.typed.columns import DELETED, table_spec
from sinks.typed.table import typed_specs
from sinks.views.catalog import Catalog
from sinks.views.definition import VIEWS, view
from sinks.warehouse import absolute, names_in
from sources.errors import ConfigurationError, ReplicaError

_OF_LOGS: Final = (LOG.name, KAFKA_LOG.name)
_KEEPS_PLANS: Final = "spark.sql.legacy.storeAnalyzedPlanForView"


def register(
    spark: SparkSession,
    warehouse: str,
    schema: str | None = None,
    *,
    views: Collection[str] = VIEWS,
    tables: Collection[str] | None = None,
) -> None:
    """Register the tables and views of the replica in `warehouse`, by name, in `spark`, any session with Delta.

    ::

        from logtwin import register
        register(spark, "s3a://lake/logtwin")
        spark.sql("SELECT * FROM messages WHERE array_contains(keys, 'order-4711')").show()

    Typed tables are among them. All are temporary views of the session. With `schema`, ``schema`` or
    ``catalog.schema``, they are external tables and views of that schema in the session's catalog, where others find
    them too, and no temporary views; the schema is created if need be. A query sees each table's last commit. A table
    that is created later shows its rows after the next call, which replaces what earlier calls made.
    `views` and `tables` (None: all) limit what is registered as temporary views: if the queries are known, `named_in`
    and `words_in` give the names that they need.

    Raises ReplicaError if there is no replica, and ConfigurationError if a name in the schema is taken.
    """
    place = absolute(warehouse)
    existing = newest_versions(spark, place, tables)
    if schema is not None:
        typed = typed_specs(spark, place)
        Catalog(spark, schema, place).register([*TABLES, *typed], {*existing, *(spec.name for spec in typed)})
        return
    for spec, frame in frames(spark, place, existing, tables=tables):
        frame.createOrReplaceTempView(spec.name)
    for spec in typed_specs(spark, place, tables):
        frame = spark.read.format("delta").load(spec.path(place))
        live = frame.where(f"NOT {DELETED.name}") if DELETED.name in spec.schema.names else frame
        live.createOrReplaceTempView(spec.name)
    register_views(spark, views)


def table_names(spark: SparkSession, warehouse: str) -> set[str]:
    """The names of the tables, typed ones among them, that `register` finds now. Raises as it does."""
    place = absolute(warehouse)
    return {*newest_versions(spark, place), *(spec.name for spec in typed_specs(spark, place))}


def unregister(spark: SparkSession, warehouse: str, schema: str, name: str) -> None:
    """Remove the typed table `name` of that warehouse from `schema`, if it is there. Raises ConfigurationError."""
    Catalog(spark, schema, absolute(warehouse)).unregister(table_spec(name, ()))


def register_views(spark: SparkSession, views: Collection[str] = VIEWS) -> None:
    """Create the temporary views `views`, in their order, over the tables that the session knows by their names.

    Spark keeps the analysed plan of each: a view kept as text would be analysed again with every query over it.
    """
    before = spark.conf.get(_KEEPS_PLANS)
    spark.conf.set(_KEEPS_PLANS, "true")
    try:
        for name in views:
            spark.sql(view(name).created(temporary=True))
    finally:
        spark.conf.set(_KEEPS_PLANS, str(before))


def all_names(spark: SparkSession, warehouse: str) -> set[str]:
    typed = typed_specs(spark, absolute(warehouse))
    return {*VIEWS, *(spec.name for spec in (*TABLES, *typed))}


def frames(
    spark: SparkSession,
    place: str,
    existing: Collection[str],
    pinned: Mapping[str, int] | None = None,
    tables: Collection[str] | None = None,
) -> Iterator[tuple[TableSpec, DataFrame]]:
    """A frame for each of `tables` (None: all), without rows unless its name is in `existing`.

    A frame shows the version that `pinned` has for its table, or else the newest one at each query.
    """
    versions = pinned or {}
    for spec in _among(tables):
        if spec.name in existing:
            is_pinned = spec.name in versions
            reader = spark.read.options(versionAsOf=versions[spec.name]) if is_pinned else spark.read
            yield spec, reader.format("delta").load(spec.path(place))
        else:
            yield spec, spark.sql(empty_table(spec)).to(spark_schema(spec.schema))  # with the comments


def _among(tables: Collection[str] | None) -> list[TableSpec]:
    return [spec for spec in TABLES if tables is None or spec.name in tables]


def newest_versions(spark: SparkSession, place: str, tables: Collection[str] | None = None) -> dict[str, int]:
    """The newest version, by name, of each of `tables` (None: all) that exists in the warehouse `place`.

    A table of records, which makes the place a replica, is always among them. Raises ReplicaError if there is no
    replica, and ConfigurationError for a session without Delta, or a place that is ambiguous.
    """
    check_one_place(spark, place)
    try:
        there = names_in(spark, place)
        found = _versions(spark, place, (spec for spec in _among(tables) if spec.name in there))
        for spec in (LOG, KAFKA_LOG):
            if found.keys().isdisjoint(_OF_LOGS) and spec.name in there:
                found |= _versions(spark, place, [spec])
    except (PySparkException, Py4JError) as error:
        raise failed_by(error)(
            f"the tables in {place} cannot be opened",
            found=first_line(error),
            hint="Check that their storage can be reached, and that the session has Delta.",
        ) from error
    if found.keys().isdisjoint(_OF_LOGS):
        raise no_replica(place)
    return found


def no_replica(place: str) -> ReplicaError:
    return ReplicaError(
        f"no replica in {place}",
        expected=f"a Delta table in {LOG.path(place)} or {KAFKA_LOG.path(place)}",
        found="none",
        hint="See warehouse in the configuration; logtwin replicate makes the tables.",
    )


def _versions(spark: SparkSession, place: str, specs: Iterable[TableSpec]) -> dict[str, int]:
    versions = {spec.name: _newest_version(spark, spec.path(place)) for spec in specs}
    return {name: version for name, version in versions.items() if version is not None}


def _newest_version(spark: SparkSession, path: str) -> int | None:
    """The newest version of the table at `path`; None if there is no table.

    delta-spark is asked, because it keeps what it finds for later queries: Kernel would read the Delta log once more.
    """
    delta_log = cast(Any, spark._jvm).org.apache.spark.sql.delta.DeltaLog
    if isinstance(delta_log, JavaPackage):  # py4j takes an unknown class for a package
        raise ConfigurationError(
            "the Spark session has no Delta",
            expected="the package io.delta:delta-spark in the session",
            found="none",
            hint="pyspark --packages io.delta:delta-spark_…, with Delta's extension and catalog.",
        )
    version = int(delta_log.forTableWithSnapshot(spark._jsparkSession, path)._2().version())
    return None if version < 0 else version
