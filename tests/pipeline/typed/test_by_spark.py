"""What of a typed table Spark alone does: the views make messages of records, and conditions choose among them."""

import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
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
from tests.sinks.typed.formats.test_canal import event as canal
from tests.sinks.typed.formats.test_debezium import event as debezium
from tests.sinks.typed.formats.test_maxwell import event as maxwell

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
