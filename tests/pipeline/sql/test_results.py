"""Values of every type in each form; expected values are the literals of the query."""

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.sql.output import Format
from pipeline.sql.results import TABLE_ROWS, WrittenRows, writer
from sources.errors import QueryError

pytestmark = pytest.mark.spark

VALUES = r"""
SELECT 9007199254740993 AS big, CAST(1.10 AS DECIMAL(5, 2)) AS price, 1e300D AS far, true AS yes,
  DATE'2024-02-29' AS day, TIMESTAMP'2024-02-29 12:00:00.000123Z' AS at, TIMESTAMP_NTZ'2024-02-29 12:00:00' AS clock,
  'a,"b"' || chr(10) || 'c' AS text, '' AS empty, CAST(NULL AS STRING) AS nothing, X'00FFfe' AS raw,
  array(1, NULL) AS list, map('k', X'01') AS map, named_struct('at', TIMESTAMP'2024-02-29 12:00:00Z') AS struct,
  parse_json('{"a": [1, "x", null]}') AS json, parse_json('"x"') AS word, NULL AS void
"""
TEXTS = {
    "big": "9007199254740993",
    "price": "1.10",
    "far": "1.0E300",
    "yes": "true",
    "day": "2024-02-29",
    "at": "2024-02-29T12:00:00.000123Z",
    "clock": "2024-02-29T12:00:00.000000",
    "text": 'a,"b"\nc',
    "empty": "",
    "nothing": "",
    "raw": "AP/+",
    "list": "[1,null]",
    "map": '{"k":"AQ=="}',
    "struct": '{"at":"2024-02-29T12:00:00.000000Z"}',
    "json": '{"a":[1,"x",null]}',
    "word": '"x"',
    "void": "",
}


@pytest.fixture(scope="module")
def elsewhere(spark: SparkSession) -> SparkSession:
    """A session in another time zone: results are in UTC all the same."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session


def written(frame: DataFrame, form: Format) -> tuple[bytes, WrittenRows]:
    sink = io.BytesIO()
    found = writer(form, width=None)(frame, sink)
    return sink.getvalue(), found


def test_csv(elsewhere: SparkSession) -> None:
    data, found = written(elsewhere.sql(VALUES), "csv")
    (row,) = csv.DictReader(io.StringIO(data.decode(), newline=""))
    assert row == TEXTS
    assert found == WrittenRows(1)
    # an empty text is told from none
    assert ',"",,AP/+,' in data.decode()


def test_json(elsewhere: SparkSession) -> None:
    data, _ = written(elsewhere.sql(VALUES), "json")
    row = json.loads(data, parse_float=Decimal)
    assert list(row) == list(TEXTS)
    assert (row["big"], row["price"], row["far"]) == (9007199254740993, Decimal("1.10"), Decimal("1e300"))
    assert (row["yes"], row["nothing"], row["empty"], row["void"]) == (True, None, "", None)
    assert (row["json"], row["word"]) == ({"a": [1, "x", None]}, "x")
    assert row["struct"] == {"at": "2024-02-29T12:00:00.000000Z"}
    same = ("day", "at", "clock", "text", "raw")
    assert [row[name] for name in same] == [TEXTS[name] for name in same]


def test_parquet(elsewhere: SparkSession) -> None:
    data, found = written(elsewhere.sql(VALUES), "parquet")
    table = pq.read_table(io.BytesIO(data))
    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    (row,) = table.to_pylist()
    assert found == WrittenRows(1)
    assert row == TEXTS | {
        "big": 9007199254740993,
        "price": Decimal("1.10"),
        "far": 1e300,
        "yes": True,
        "day": date(2024, 2, 29),
        "at": noon.replace(microsecond=123),
        "clock": noon.replace(tzinfo=None),
        "nothing": None,
        "raw": b"\x00\xff\xfe",
        "list": [1, None],
        "map": [("k", b"\x01")],
        "struct": {"at": noon},
        "void": None,
    }
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"


def test_the_order_of_many_rows_is_kept(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id, repeat('x', 100) AS text FROM range(0, 30000, 1, 7) ORDER BY id DESC")
    wanted = list(range(29_999, -1, -1))
    data, found = written(frame, "json")
    assert [json.loads(line)["id"] for line in data.splitlines()] == wanted
    assert found == WrittenRows(30_000)
    data, _ = written(frame, "parquet")
    assert pq.read_table(io.BytesIO(data))["id"].to_pylist() == wanted


def test_a_table_says_that_it_is_cut(spark: SparkSession) -> None:
    data, found = written(spark.range(TABLE_ROWS + 1).toDF("id"), "table")
    assert found == WrittenRows(TABLE_ROWS, is_cut=True)
    assert len(data.splitlines()) == TABLE_ROWS + 2
    _, found = written(spark.range(TABLE_ROWS).toDF("id"), "table")
    assert found == WrittenRows(TABLE_ROWS)


def test_a_table_cuts_what_no_terminal_can_show(spark: SparkSession) -> None:
    frame = spark.sql("SELECT repeat('x', 5000000) AS text, CAST(repeat('x', 5000000) AS BINARY) AS raw, 'y' AS z")
    data, _ = written(frame, "table")
    text, raw, rest = data.decode().splitlines()[-1].split()
    assert (text, rest) == ("x" * 1000 + "…", "y")
    assert (len(raw), raw[-1]) == (1001, "…")


def test_without_rows_there_are_the_names(spark: SparkSession) -> None:
    nothing = spark.sql("SELECT 1 AS n, 'x' AS text WHERE false")
    assert written(nothing, "table") == ("n  text\n─  ────\n".encode(), WrittenRows(0))
    assert written(nothing, "csv") == (b"n,text\n", WrittenRows(0))
    assert written(nothing, "json") == (b"", WrittenRows(0))
    table = pq.read_table(io.BytesIO(written(nothing, "parquet")[0]))
    assert (table.num_rows, table.column_names) == (0, ["n", "text"])


def test_columns_of_one_name(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS n, 2 AS n, 3 AS `a.b`")
    assert written(frame, "csv")[0] == b"n,n,a.b\n1,2,3\n"
    for form in ("json", "parquet"):
        with pytest.raises(QueryError, match="n more than once"):
            written(frame, form)
    assert json.loads(written(spark.sql("SELECT 3 AS `a.b`, parse_json('1') AS `c.d`"), "json")[0]) == {
        "a.b": 3,
        "c.d": 1,
    }
    data, _ = written(spark.sql("SELECT 3 AS `a.b`, parse_json('1') AS `c.d`"), "parquet")
    assert pq.read_table(io.BytesIO(data)).to_pylist() == [{"a.b": 3, "c.d": "1"}]
