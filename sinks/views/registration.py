"""Register a replica's tables and views by their names, in a Spark session or in a schema of its catalog: `register`.

Tables that do not exist yet (no loss so far, no broker with such metadata) become views without rows until they do, so
that every query works on every replica. In a catalog, a table that exists becomes an external Delta table. There

    no table is dropped or replaced          a table of that name may be anybody's, and dropping a managed one deletes
                                             its rows; except an external one of ours that is about to be deleted
    only views with our mark are replaced    `_MARK` names the warehouse that they belong to

So all names are checked before anything is made, and a name that is taken stops everything. A call that was interrupted
can be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sinks.delta.spark_jobs import first_line
from sinks.storage.check import check_one_place
from sinks.storage.errors import failed_by
from sinks.tables import KAFKA_LOG, LOG, TABLES, TableSpec
from sinks.typed.columns import DELETED, table_spec
from sinks.typed.table import typed_specs
from sinks.views.definition import VIEWS, View, view
from sinks.warehouse import absolute, empty_table, empty_view, literal, names_in, spark_schema
from sources.errors import ConfigurationError, ReplicaError

_OF_LOGS: Final = (LOG.name, KAFKA_LOG.name)
_KEEPS_PLANS: Final = "spark.sql.legacy.storeAnalyzedPlanForView"
_MARK: Final = "logtwin.warehouse"
_MADE: Final = "logtwin.statement"


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


class Catalog:
    """The schema ``schema`` or ``catalog.schema``, in which the replica in the warehouse `place` is registered."""

    def __init__(self, spark: SparkSession, schema: str, place: str) -> None:
        # a session of its own: temporary views of the caller would hide the tables, and its current schema stays
        self._session = spark.newSession()
        # Spark would refuse columns that the view names and its query does not: `_with_names` gives them their names
        self._session.conf.set("spark.sql.legacy.allowAutoGeneratedAliasForView", "true")
        self._schema = schema
        self._quoted = ".".join(f"`{part}`" for part in schema.split("."))
        self._place = place
        self._made: dict[str, str] = {}

    def register(self, tables: Sequence[TableSpec], existing: Collection[str]) -> None:
        """Register `tables`, of which those named in `existing` exist, and the views. Raises ConfigurationError."""
        with self._translated():
            self._session.sql(f"CREATE SCHEMA IF NOT EXISTS {self._quoted}")
            self._session.sql(f"USE {self._quoted}")
            registered = {spec.name for spec in tables if self._is_registered(spec, exists=spec.name in existing)}
            for name in VIEWS:
                self._check_view(name)
            for spec in tables:
                if spec.name not in registered:
                    self._make(spec, exists=spec.name in existing)
            for name in VIEWS:
                self._make_view(name, _with_names(view(name)))

    def unregister(self, spec: TableSpec) -> None:
        """Drop the external table `spec`, if it is there; another table of that name stays.

        Raises ConfigurationError.
        """
        with self._translated():
            if self._session.catalog.databaseExists(self._schema):
                self._session.sql(f"USE {self._quoted}")
                if self._session.catalog.tableExists(spec.name) and self._is_of(spec, self._described(spec.name)):
                    self._session.sql(f"DROP TABLE {spec.name}")  # an external table: its files stay

    def _make(self, spec: TableSpec, *, exists: bool) -> None:
        if not exists:
            self._make_view(spec.name, empty_view(spec))
            return
        self._session.sql(f"DROP VIEW IF EXISTS {spec.name}")  # ours, and never a table
        path = literal(spec.path(self._place))
        self._session.sql(f"CREATE TABLE IF NOT EXISTS {spec.name} USING DELTA LOCATION {path}")

    def _make_view(self, name: str, statement: str) -> None:
        """Create a view, unless the same statement has made it: some take Spark a second, and there are dozens."""
        digest = hashlib.sha256(statement.encode()).hexdigest()
        if self._made.get(name) != digest:
            marks = f"TBLPROPERTIES ({literal(_MARK)} = {literal(self._place)}, {literal(_MADE)} = {literal(digest)})"
            self._session.sql(statement.replace("\nAS\n", f"\n{marks}\nAS\n", 1))

    def _is_registered(self, spec: TableSpec, *, exists: bool) -> bool:
        """Whether the table is registered already. Raises ConfigurationError if its name is taken."""
        if not self._session.catalog.tableExists(spec.name):
            return False
        described = self._described(spec.name)
        if described.get("Type") == "VIEW":
            self._check_view(spec.name)
            return False
        if not exists or not self._is_of(spec, described):
            raise self._taken(spec.name, f"a table in {described.get('Location', '')}")
        return True

    def _is_of(self, spec: TableSpec, described: Mapping[str, str]) -> bool:
        location = described.get("Location")
        return location is not None and self._qualified(location) == self._qualified(spec.path(self._place))

    def _check_view(self, name: str) -> None:
        """Raises ConfigurationError unless `name` is free, or a view that was made here."""
        if not self._session.catalog.tableExists(name):
            return
        if self._described(name).get("Type") != "VIEW":
            raise self._taken(name, "a table")
        of = {row["key"]: row["value"] for row in self._session.sql(f"SHOW TBLPROPERTIES {name}").collect()}
        if _MARK not in of or absolute(of[_MARK]) != self._place:
            raise self._taken(name, f"a view of the replica in {of[_MARK]}" if _MARK in of else "a view")
        self._made[name] = of.get(_MADE, "")

    def _described(self, name: str) -> dict[str, str]:
        """Describe a table or view by the catalog: its columns come first, then further properties."""
        rows = self._session.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        return {row["col_name"]: row["data_type"] for row in rows}

    def _qualified(self, path: str) -> str:
        """A path as its file system spells it."""
        java = cast(Any, self._session._jvm).org.apache.hadoop.fs.Path(path)
        return str(java.getFileSystem(self._session._jsc.hadoopConfiguration()).makeQualified(java).toString())

    def _taken(self, name: str, found: str) -> ConfigurationError:
        return ConfigurationError(
            f"the name {self._schema}.{name} is taken",
            expected=f"nothing of that name, or what is registered of the replica in {self._place}",
            found=found,
            hint="Choose another schema: nothing that is there is dropped or replaced.",
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (PySparkException, Py4JError) as error:
            raise ConfigurationError(
                f"the replica in {self._place} cannot be registered in {self._schema}",
                found=first_line(error),
                hint="The session's catalog has to know Delta tables and views, and to let this user make them.",
            ) from error


def _with_names(one: View) -> str:
    """The statement that creates a view, with each column named in the query, as a catalog needs it."""
    head, _, query = one.created(temporary=False).partition("\nAS\n")
    columns = ", ".join(f"`{column}`" for column in one.columns)
    return f"{head}\nAS\nFROM (\n{query}\n) AS {one.name} ({columns})\nSELECT *"
