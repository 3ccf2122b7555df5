"""One call, and a session or a catalog knows the replica by name; and nothing that was there before is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.books.incident import Action, Incident
from sinks.books.incidents import IncidentsTable
from sinks.spark_schemas import spark_schema
from sinks.tables import TABLES
from sinks.views.definition import VIEWS, view
from sinks.views.registration import register
from sources.errors import ConfigurationError, ReplicaError
from sources.loss import Condition
from sources.offsets import Offset
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import BROKER_A, MemoryMaster

pytestmark = pytest.mark.spark

MASTER = MemoryMaster((100,) * 20)
NAMES = {*(spec.name for spec in TABLES), *VIEWS}
LOST = Incident(
    condition=Condition.GAP,
    start=Offset(500),
    end=Offset(600),
    cause="",
    action=Action.SKIPPED,
    detected_at=1,
)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten records, in a folder whose name has to be quoted."""
    folder = tmp_path_factory.mktemp("lakes") / "o'brien's `lake` 100%"
    folder.mkdir()
    opened(spark, folder, MASTER)(ranges(0, 1000))
    return folder


def rows(session: SparkSession, name: str) -> int:
    return session.table(name).count()


def test_every_table_and_view_is_known_with_its_comments(spark: SparkSession, lake: Path) -> None:
    session = spark.newSession()
    register(session, str(lake))
    assert {table.name for table in session.catalog.listTables() if table.isTemporary} == NAMES
    for spec in TABLES:
        assert session.table(spec.name).schema == spark_schema(spec.schema), spec.name
    assert [rows(session, name) for name in ("log", "ledger", "incidents", "topics")] == [10, 1, 0, 0]
    for name in VIEWS:
        described = session.sql(f"DESCRIBE {name}").collect()
        assert {row["col_name"]: row["comment"] for row in described} == view(name).columns


def test_queries_see_what_is_committed_later_and_new_tables_after_the_next_call(
    spark: SparkSession, tmp_path: Path
) -> None:
    replica = opened(spark, tmp_path, MASTER)
    replica(ranges(0, 1000))
    session = spark.newSession()
    register(session, str(tmp_path), views=["completeness"])
    assert rows(session, "log") == 10
    assert session.table("completeness").select("complete_to").collect() == [(1000,)]
    replica(ranges(1000, 2000))
    IncidentsTable(spark, str(tmp_path), BROKER_A).record(0, [LOST])
    assert (rows(session, "log"), rows(session, "incidents")) == (20, 0)
    assert session.table("completeness").select("complete_to").collect() == [(2000,)]
    register(session, str(tmp_path), views=())
    assert rows(session, "incidents") == 1


def test_without_a_replica_there_is_a_hint(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ReplicaError, match=r"no replica in .*found none\. See warehouse in the configuration"):
        register(spark.newSession(), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """The name of a schema that is not there."""
    yield "registered"
    spark.sql("DROP SCHEMA IF EXISTS registered CASCADE")


def test_a_schema_serves_other_sessions(spark: SparkSession, lake: Path, schema: str) -> None:
    session = spark.newSession()
    register(session, str(lake), schema)
    register(session, str(lake), schema=f"spark_catalog.{schema}")  # changes nothing
    assert session.catalog.currentDatabase() == "default"
    other = spark.newSession()
    assert {table.name for table in other.catalog.listTables(schema)} == NAMES
    assert rows(other, f"{schema}.log") == 10
    assert other.table(f"{schema}.completeness").select("complete_to").collect() == [(1000,)]
    for spec in TABLES:
        table = other.table(f"{schema}.{spec.name}").schema
        assert table == spark_schema(spec.schema), spec.name
    kinds = {table.name: table.tableType for table in other.catalog.listTables(schema)}
    assert kinds == {name: "EXTERNAL" if name in ("log", "ledger") else "VIEW" for name in NAMES}
    spark.sql(f"DROP SCHEMA {schema} CASCADE")
    assert (lake / "log" / "_delta_log").is_dir()


def test_a_table_takes_the_place_of_its_empty_view_and_never_that_of_another_replica(
    spark: SparkSession, lake: Path, tmp_path: Path, schema: str
) -> None:
    replica = opened(spark, tmp_path, MASTER)
    replica(ranges(0, 1000))
    session = spark.newSession()
    register(session, str(tmp_path), views=["completeness"])  # temporary views do not get in the way
    register(session, str(tmp_path), schema)
    assert rows(session, f"{schema}.incidents") == 0
    IncidentsTable(spark, str(tmp_path), BROKER_A).record(0, [LOST])
    register(session, str(tmp_path), schema)
    assert rows(session, f"{schema}.incidents") == 1
    assert session.table(f"{schema}.completeness").select("open_incidents").collect() == [(1,)]
    with pytest.raises(ConfigurationError, match=r"the name registered\.log is taken; .* found a table in .*place"):
        register(session, str(lake), schema)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("CREATE TABLE registered.log USING delta AS SELECT 7 AS precious", "a table in "),
        ("CREATE TABLE registered.topics USING parquet AS SELECT 7 AS precious", "a table in "),
        ("CREATE TABLE registered.messages USING delta AS SELECT 7 AS precious", "a table"),
        ("CREATE VIEW registered.messages AS SELECT 7 AS precious", "a view"),
        ("CREATE VIEW registered.incidents AS SELECT 7 AS precious", "a view"),
    ],
)
def test_what_has_the_name_stays_as_it_is(
    spark: SparkSession, lake: Path, schema: str, statement: str, found: str
) -> None:
    spark.sql(f"CREATE SCHEMA {schema}")
    spark.sql(statement)
    name = statement.split()[2]
    with pytest.raises(ConfigurationError, match=f"the name {name} is taken; expected nothing .*, found {found}"):
        register(spark.newSession(), str(lake), schema)
    assert spark.table(name).collect() == [(7,)]
    there = [table.name for table in spark.catalog.listTables(schema) if not table.isTemporary]
    assert there == [name.split(".")[1]]


def test_a_catalog_that_is_not_there_is_said_plainly(spark: SparkSession, lake: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be registered in nowhere\.lake; found .*nowhere") as failure:
        register(spark.newSession(), str(lake), "nowhere.lake")
    assert "\n" not in str(failure.value)
