"""One call, and a session or a catalog knows the replica by name; and nothing that was there before is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.tables import INCIDENTS, LEDGER, LOG, TABLES
from sinks.views import registration
from sinks.views.definition import VIEWS, view
from sinks.views.registration import register
from sinks.warehouse import spark_schema
from sources.errors import ConfigurationError
from tests.sinks.views.lake import write
from tests.sinks.views.made_logs import message
from tests.sinks.views.made_topics import loss, ranges_of

pytestmark = pytest.mark.spark

TABLE_NAMES = {spec.name for spec in TABLES}
LOST = loss("rocketmq/broker-a", 500, 600, "skipped")


def ten_records(lake: Path, start: int = 0) -> None:
    """A commit, and its row of the ledger."""
    write(lake, LOG, [message(at) for at in range(start, start + 1000, 100)])
    write(lake, LEDGER, ranges_of("rocketmq/broker-a", (start, start + 1000), records=10, bytes=1000))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Ten records, in a folder whose name has to be quoted."""
    folder = tmp_path / "o'brien's `lake` 100%"
    ten_records(folder)
    return folder


def rows(session: SparkSession, name: str) -> int:
    return session.table(name).count()


def test_every_table_and_view_is_known_with_its_comments(views: SparkSession) -> None:
    assert {table.name for table in views.catalog.listTables() if table.isTemporary} == {*TABLE_NAMES, *VIEWS}
    for spec in TABLES:
        assert views.table(spec.name).schema == spark_schema(spec.schema), spec.name
    for name in VIEWS:
        comments = {field.name: field.metadata["comment"] for field in views.table(name).schema}
        assert comments == view(name).columns


def test_queries_see_what_is_committed_later_and_new_tables_after_the_next_call(
    spark: SparkSession, lake: Path
) -> None:
    session = spark.newSession()
    register(session, str(lake), views=["completeness"])
    assert (rows(session, "log"), rows(session, "incidents")) == (10, 0)
    assert session.table("completeness").select("complete_to").collect() == [(1000,)]
    ten_records(lake, 1000)
    write(lake, INCIDENTS, [LOST])
    assert (rows(session, "log"), rows(session, "incidents")) == (20, 0)
    assert session.table("completeness").select("complete_to").collect() == [(2000,)]
    register(session, str(lake), views=())
    assert rows(session, "incidents") == 1


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    yield "registered"
    spark.sql("DROP SCHEMA IF EXISTS registered CASCADE")


@pytest.mark.nightly
def test_a_schema_serves_other_sessions_and_tables_that_are_new_take_the_place_of_empty_views(
    spark: SparkSession, lake: Path, tmp_path: Path, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one view of all, which are made in the same way; that all can be: `test_documents` of tests/."""
    monkeypatch.setattr(registration, "VIEWS", ("completeness",))
    session = spark.newSession()
    register(session, str(lake), views=["completeness"])  # temporary views do not get in the way
    register(session, str(lake), schema)
    assert session.catalog.currentDatabase() == "default"
    other = spark.newSession()
    for spec in TABLES:
        assert other.table(f"{schema}.{spec.name}").schema == spark_schema(spec.schema), spec.name
    kinds = {table.name: table.tableType for table in other.catalog.listTables(schema)}
    tables = dict.fromkeys(("log", "ledger"), "EXTERNAL")
    assert kinds == dict.fromkeys((*TABLE_NAMES, "completeness"), "VIEW") | tables
    assert (rows(other, f"{schema}.log"), rows(other, f"{schema}.incidents")) == (10, 0)
    write(lake, INCIDENTS, [LOST])
    register(session, str(lake), schema=f"spark_catalog.{schema}")
    assert rows(other, f"{schema}.incidents") == 1
    assert other.table(f"{schema}.completeness").select("complete_to", "open_incidents").collect() == [(1000, 1)]
    ten_records(tmp_path / "another")
    with pytest.raises(ConfigurationError, match=r"the name registered\.log is taken; .* found a table in .*lake"):
        register(session, str(tmp_path / "another"), schema)
    spark.sql(f"DROP SCHEMA {schema} CASCADE")
    assert (lake / "log" / "_delta_log").is_dir()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("CREATE TABLE registered.topics USING parquet AS SELECT 7 AS precious", "a table in "),
        ("CREATE VIEW registered.messages AS SELECT 7 AS precious", "a view"),
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
