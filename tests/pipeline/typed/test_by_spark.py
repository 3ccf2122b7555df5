"""What of a typed table Spark alone does: the views make messages of records, and conditions choose among them."""

import json
import zlib
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest

from pipeline.config.typed_tables import TypedTableConfig
from pipeline.operate.typed_tables import checked, verdict_lines
from sinks.typed.definition import CHANGES, Reading
from sinks.typed.rebuild import rebuild
from sinks.typed.step.follower import TypedFollower
from sinks.typed.step.messages import messages_in, records_of
from sinks.typed.step.plan import FollowedLogs
from sources.errors import ConfigurationError
from sources.offsets import Offset, OffsetRange
from tests.pipeline.running import job_config
from tests.pipeline.typed.in_process import PlainJob
from tests.pipeline.typed.world import InFiles, bring, definition, fields
from tests.sinks.typed.formats.test_avro import encoded
from tests.sinks.typed.formats.test_canal import event as canal
from tests.sinks.typed.formats.test_debezium import event as debezium
from tests.sinks.typed.formats.test_maxwell import event as maxwell
from tests.sinks.typed.served_schemas import Served, frame

pytestmark = pytest.mark.spark


def test_conditions_tags_text_and_compressed_bodies(by_spark: InFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of `ParsingJob`, each for two steps. What stands for them in other tests makes the same."""
    junk = b"no stream of zlib"
    tagged = by_spark.follower(name="tagged", tags=("a", "b"), where="tags <> 'b'")
    notes = by_spark.follower(name="notes", topics=("notes",), reading=Reading(format="text"))
    for step in (1, 2):
        for tag in ("a", "b", "c"):
            by_spark.send({"id": f"{tag}{step}"}, properties={"TAGS": tag})
        by_spark.send(zlib.compress(b'{"id": "z"}'), junk, properties={"TAGS": "a"}, sys_flag=1)
        by_spark.send(b"plain \xff", "plain", topic="notes")
        by_spark.replicate()
        assert (bring(tagged), bring(notes)) == (1, 1)
    assert fields(by_spark.rows("tagged")) == [{"id": "a1"}, {"id": "z"}, {"id": "a2"}, {"id": "z"}]
    assert fields(by_spark.rows("notes")) == [{"text": '"plain"'}] * 2
    told = "sys_flag 1, 17 bytes that cannot be decompressed, or are too many then"
    assert [(row["reason"], row["found"], row["body"]) for row in by_spark.unfit()] == [
        ("not_decompressed", told, junk),
        ("not_utf8", "byte 0xff at 6", b"plain \xff"),
    ] * 2
    with pytest.raises(ConfigurationError, match="where"):
        by_spark.follower(name="wrong", where="no_such_column > 1").prepare()
    monkeypatch.setattr("sinks.typed.step.follower.ParsingJob", PlainJob)
    bring(by_spark.follower(name="in_process", topics=("notes",), reading=Reading(format="text")))
    assert by_spark.rows("in_process") == by_spark.rows("notes")
    assert [row["table"] for row in by_spark.unfit()].count("in_process") == 2


def test_topics_of_a_pattern_also_those_that_come_later(by_spark: InFiles) -> None:
    """Spark alone finds the same messages as the tasks, which read the pattern in Python."""
    wanted = definition(name="matching", topics=("orders-(?!test).*", "notes"))
    matching = TypedFollower(by_spark.spark, by_spark.lake, wanted)
    for step in (["orders-eu", "orders-test", "orders", "notes"], ["orders-us", "old-orders-eu"]):
        for topic in step:
            by_spark.send({"id": topic}, topic=topic)
        by_spark.replicate()
        bring(matching)
    assert fields(by_spark.rows("matching")) == [{"id": "orders-eu"}, {"id": "notes"}, {"id": "orders-us"}]
    assert matching.unmatched == ()
    logs = FollowedLogs(by_spark.spark, by_spark.lake, wanted).newest()
    ranges = {one: [OffsetRange(Offset(0), held.offset)] for one, held in logs.items()}
    assert messages_in(by_spark.spark, by_spark.lake, wanted, ranges).count() == 3
    counted = records_of(by_spark.spark, by_spark.lake, wanted, ranges).collect()
    assert {row["source"]: row["records"] for row in counted} == dict.fromkeys(("orders-eu", "orders-us", "notes"), 1)


def test_tables_of_change_events(by_spark: InFiles) -> None:
    """Each key has one row, also in a table that is made anew."""
    said = {"database": "shop", "table": "orders", "mode": "upsert", "key": ["id"]}
    tables = tuple(
        TypedTableConfig.model_validate({"name": one, "from": [one], "format": one, **said}) for one in CHANGES
    )
    types = {"id": "int(11)", "name": "varchar(9)", "amount": "decimal(12,2)"}
    old, new = {"id": 2, "name": "b"}, {"id": 3, "name": "b"}
    for event in (
        canal({"id": "1", "name": "a"}, {"id": "2", "name": "b", "amount": "1.10"}, mysqlType=types),
        canal({"id": "3", "name": "b", "amount": "1.10"}, old=[{"id": "2"}], type="UPDATE", mysqlType=types),
        canal({"id": "1", "name": "a"}, type="DELETE", mysqlType=types),
    ):
        by_spark.send(event, topic="canal")
    by_spark.send(
        debezium("d", None, old, pos=9), debezium("c", new, pos=9), debezium("u", old, pos=3), topic="debezium"
    )
    by_spark.send(maxwell(data=old), maxwell("update", data=new, old={"id": 2}), topic="maxwell")
    by_spark.replicate()
    for one in tables:
        bring(TypedFollower(by_spark.spark, by_spark.lake, one.definition()))
        assert [(row["id"], row["name"]) for row in by_spark.rows(one.name) if not row["_deleted"]] == [(3, "b")]
    before = by_spark.rows("canal")
    assert [row["amount"] for row in before if row["id"] == 3] == [Decimal("1.10")]
    rebuild(by_spark.spark, by_spark.lake, tables[0].definition())
    assert by_spark.rows("canal") == before
    config = job_config(by_spark.lake, **by_spark.options).model_copy(update={"tables": tables})
    (verdict,) = checked(by_spark.spark, config, "canal")
    assert [*verdict_lines([verdict])] == ["canal: equal, 3 messages: 1 row (2 deleted since), no value unfit"]


def test_a_key_may_have_a_dot(by_spark: InFiles) -> None:
    said = {"mode": "upsert", "key": ["a.b"], "schema": {"a.b": "bigint", "n": "bigint"}}
    table = TypedTableConfig.model_validate({"name": "dots", "from": ["dots"], **said})
    by_spark.send(b'{"a.b":1,"n":1}', b'{"a.b":1,"n":2}', topic="dots")
    by_spark.replicate()
    bring(TypedFollower(by_spark.spark, by_spark.lake, table.definition()))
    config = job_config(by_spark.lake, **by_spark.options).model_copy(update={"tables": (table,)})
    (verdict,) = checked(by_spark.spark, config, "dots")
    assert [*verdict_lines([verdict])] == ["dots: equal, 2 messages: 1 row, no value unfit"]


def test_columns_with_parts_read_the_same_by_four_engines(by_spark: InFiles) -> None:
    """Of a table by key, whose older files lack a part; with others, a part computed, one masked, one dropped."""
    table = TypedTableConfig.model_validate(
        {
            "name": "parts", "from": ["parts"], "mode": "upsert", "key": ["id"],
            "mask": {"customer.card": "redact"}, "drop": ["lines.note"],
            "compute": {"first": {"type": "string", "sql": "get(lines, 0).sku"}},
            "schema": {
                "id": "int", "customer": "struct<card:bigint,born:date,at:timestamp_ms>",
                "lines": "ARRAY<STRUCT<sku: STRING, amount: DECIMAL(12,2), note: STRING>>",
                "prices": "map<string,double>", "more": "struct<`a-b`:array<map<string,array<int>>>,any:json>",
            },
        }
    )  # fmt: skip
    by_spark.send(
        {
            "id": 1, "customer": {"card": 4711, "born": "2026-11-28", "at": 0, "vip": True},
            "lines": [{"sku": "a", "amount": 1.5, "note": "n"}, None, {"sku": 7}], "prices": {"x": 1, "y": None},
            "more": {"a-b": [{"k": [1, None]}, {}], "any": {"z": [1.50]}},
        },
        {"id": 2, "lines": [], "prices": {}, "more": {}},
        {"id": 3, "customer": 5},
        topic="parts",
    )  # fmt: skip
    nothing = dict.fromkeys(("customer", "lines", "prices", "more", "first", "_rest"))
    expected = [
        {
            "id": 1, "customer": {"card": "***", "born": date(2026, 11, 28), "at": datetime(1970, 1, 1, tzinfo=UTC)},
            "lines": [{"sku": "a", "amount": Decimal("1.50")}, None, {"sku": None, "amount": None}],
            "prices": {"x": 1.0, "y": None}, "more": {"a-b": [{"k": [1, None]}, {}], "any": '{"z": [1.5]}'},
            "first": "a", "_rest": '{"customer":{"vip":true}}',
        },
        {**nothing, "id": 2, "lines": [], "prices": {}, "more": {"a-b": None, "any": None}},
        {**nothing, "id": 3},
    ]  # fmt: skip
    by_spark.replicate()
    bring(TypedFollower(by_spark.spark, by_spark.lake, table.definition()))
    for engine, rows in by_engine(by_spark, "parts").items():
        assert [{name: row[name] for name in expected[0]} for row in rows] == expected, engine
    unfit = [(row["column"], row["reason"], row["found"]) for row in by_spark.unfit() if row["table"] == "parts"]
    assert unfit == [("lines.sku", "not_string", "7"), ("customer", "not_struct", "***")]
    config = job_config(by_spark.lake, **by_spark.options).model_copy(update={"tables": (table,)})
    (verdict,) = checked(by_spark.spark, config, "parts")
    assert [*verdict_lines([verdict])] == ["parts: equal, 3 messages: 3 rows, 2 values unfit in 2 messages"]


def test_a_struct_grows_without_a_file_written_anew(by_spark: InFiles) -> None:
    """But for those of which a row is replaced; a table that is made anew is the same one."""
    old, new = (encoded_order(part) for part in ({"a": 1}, {"a": 2, "b": "x"}))
    with closing(Served()) as served:
        served.answers.update({f"/schemas/ids/{at}": (200, {"schema": one[0]}) for at, one in enumerate((old, new))})
        how = {
            "key": ("id",),
            "reading": Reading(format="avro", registry=served.url, nested=True),
            "topics": ("grown",),
        }
        by_spark.send(*(frame(0, old[1](number)) for number in (1, 2)), topic="grown")
        by_spark.follow(name="grown", **how)
        folder = Path(by_spark.lake, "tables", "grown")
        before = {path.name for path in folder.glob("*.parquet")}
        by_spark.send(frame(1, new[1](3)), topic="grown")
        by_spark.follow(name="grown", **how)
        assert before <= {Path(uri).name for uri in deltalake.DeltaTable(str(folder)).file_uris()}
        by_spark.send(frame(1, new[1](1)), topic="grown")
        by_spark.follow(name="grown", **how)
        is_new = {"a": 2, "b": "x"}
        parts = {1: is_new, 2: {"a": 1, "b": None}, 3: is_new}
        for engine, rows in by_engine(by_spark, "grown").items():
            found = {row["id"]: (row["part"], row["list"]) for row in rows}
            assert found == {number: (part, [part]) for number, part in parts.items()}, engine
        rows_before = by_spark.rows("grown")
        rebuild(by_spark.spark, by_spark.lake, definition(name="grown", **how))
        assert by_spark.rows("grown") == rows_before
        by_spark.follow(name="at_once", **how)
        assert by_spark.rows("at_once") == rows_before
    kinds = "struct<a:bigint>", "struct<a:bigint,b:string>"
    told = [(change, was, kind) for column, change, was, kind in by_spark.changes() if column == "part"]
    assert {*told} == {("added", None, kinds[0]), ("added", None, kinds[1]), ("grown", *kinds)}


def encoded_order(part: dict[str, Any]) -> tuple[str, Callable[[int], bytes]]:
    """The schema of an order with a part like this one, and what makes the body of one."""
    fields = [{"name": name, "type": "int" if name == "a" else "string"} for name in part]
    kinds = ["int", {"type": "record", "name": "Part", "fields": fields}, {"type": "array", "items": "Part"}]
    named = [{"name": name, "type": kind} for name, kind in zip(("id", "part", "list"), kinds, strict=True)]
    schema = json.dumps({"type": "record", "name": "Order", "fields": named})
    return schema, lambda number: encoded(schema, {"id": number, "part": part, "list": [part]})


def by_engine(world: InFiles, name: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a typed table as each engine reads them, by their id; a map is a dict."""
    path = f"{world.lake}/tables/{name}"
    table = deltalake.DeltaTable(path)
    arrow = table.to_pyarrow_table()
    query = deltalake.QueryBuilder().register("found", table).execute("SELECT * FROM found")
    found: dict[str, list[dict[str, Any]]] = {
        # rows in Python would have times without their zone
        "Spark": world.spark.read.format("delta").load(path).toArrow().to_pylist(maps_as_pydicts="strict"),
        "delta-rs": arrow.to_pylist(maps_as_pydicts="strict"),
        "delta-rs' SQL": pa.table(query.read_all()).to_pylist(maps_as_pydicts="strict"),
        "Polars": polars.scan_delta(path).collect().to_dicts(),
        "DuckDB": duckdb.from_arrow(arrow).to_arrow_table().to_pylist(maps_as_pydicts="strict"),
    }
    return {engine: sorted(rows, key=lambda row: int(row["id"])) for engine, rows in found.items()}


def test_computed_columns(by_spark: InFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {
        "schema": {"id": "string", "price": "double", "card": "string"},
        "masks": {"card": "redact"},
        "computed": {
            "cents": ("bigint", "round(price * 100)"),
            "at": ("date", "CAST(stored_at AS DATE)"),
            "seen": ("string", "concat(id, card)"),
        },
    }
    monkeypatch.setattr("sinks.typed.step.follower.ParsingJob", PlainJob)
    for price in (1.25, 2.5):
        by_spark.send({"id": "a", "price": price, "card": "4711"}, {"id": "b", "price": price})
        by_spark.follow(**how)
    by_spark.follow(name="by_key", key=("id",), **how)
    rows = by_spark.rows()
    assert [(row["id"], row["cents"], row["seen"]) for row in rows] == [
        ("a", 125, "a***"), ("b", 125, None), ("a", 250, "a***"), ("b", 250, None),
    ]  # fmt: skip
    assert [row["at"] for row in rows] == [row["stored_at"].date() for row in rows]
    assert by_spark.rows("by_key") == rows[2:]
    files = {path.name for path in Path(by_spark.lake, "tables", "orders").glob("*.parquet")}
    assert files == {Path(uri).name for uri in deltalake.DeltaTable(f"{by_spark.lake}/tables/orders").file_uris()}
    for sql, said in (("no_such_column", "no_such_column"), ("rand()", "another value each time")):
        with pytest.raises(ConfigurationError, match=said):
            by_spark.follow(name="wrong", **{**how, "computed": {"x": ("double", sql)}})
