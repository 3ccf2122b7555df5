"""One entry, and a table of each table that its events are of."""

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, load, parse
from pipeline.config.found import found_tables
from pipeline.inspect.tables import described, listed
from pipeline.inspect.typed_status import status_lines, typed_statuses
from pipeline.job.typed_tables import TypedTables
from sinks.typed.rebuild import drop, rebuild
from sinks.typed.table import TypedTable
from sources.errors import LogtwinError
from tests.around import at_each
from tests.patience import wait_until
from tests.pipeline.group_in_process import give_to_verbs
from tests.pipeline.running import replicate_now
from tests.pipeline.typed.test_in_a_job import Verbs, written
from tests.pipeline.typed.world import InFiles, Served, World
from tests.sinks.typed.formats import test_canal
from tests.sinks.typed.formats.test_recorded import RECORDED, is_equal, tables

FOUND = "found_database_table"


def config_of(world: InFiles, *others: dict[str, Any], **more: Any) -> Config:
    many = {"name": "{database}_{table}", "from": ["shop"], "format": "canal", "mode": "upsert", **more}
    return parse({"warehouse": world.lake, "tables": [many, *others]}, where="test")


def bring(world: InFiles, config: Config) -> list[str]:
    """As a run to the end does; what is told."""
    world.replicate()
    return [one.problem for one in TypedTables(world.spark, config).bring(lambda: True)]


def insert(world: World, table: str, key: int = 1, database: str = "shop", **more: Any) -> None:
    row = {"id": str(key), "name": f"{database}.{table}"}
    world.send(test_canal.event(row, database=database, table=table, **{"pkNames": ["id"], **more}), topic="shop")


def names(world: World, table: str) -> list[tuple[str, str]]:
    return [(str(row["id"]), row["name"]) for row in world.rows(table) if not row["_deleted"]]


def test_five_tables_of_one_stream_equal_those_of_the_database(world: InFiles) -> None:
    """What Canal really sent. Their keys are those that it says."""
    for line in gzip.decompress((RECORDED / "canal" / "flat.jsonl.gz").read_bytes()).decode().splitlines():
        world.send(json.loads(line)["value"].encode(), topic="shop")
    config = config_of(world)
    assert bring(world, config) == []
    for table, of in tables("canal/flat").items():
        there = {}
        for row in world.rows(f"shop_{table}"):
            row["title"] = row.get("title") or row.get("name")  # renamed at the source: see test_recorded.py
            if not row["_deleted"]:
                there[tuple(str(row[column]) for column in of["key"])] = row
        assert len(there) == len(of["rows"])
        for row in of["rows"]:
            values = there[tuple(row[column] for column in of["key"])]
            unfit = {one["column"] for one in world.unfit() if one["table"] == f"shop_{table}"}
            assert [(column, values.get(column), row[column]) for column, type_ in of["columns"].items()
                    if column not in unfit and not is_equal(type_, values.get(column), row[column])] == []  # fmt: skip
    assert sorted(one.name for one in typed_statuses(config)) == [
        FOUND, *sorted(f"shop_{table}" for table in tables("canal/flat")),
    ]  # fmt: skip


def test_the_schema_file_of_another_entry_is_read_once_at_the_start(world: InFiles, tmp_path: Path) -> None:
    schema = tmp_path / "payments.avsc"
    schema.write_text('{"type": "record", "name": "p", "fields": [{"name": "id", "type": "long"}]}')
    other = {"name": "payments", "from": ["payments"], "format": "avro", "schema": str(schema)}
    running = TypedTables(world.spark, config_of(world, other))
    schema.unlink()
    insert(world, "orders")
    world.replicate()
    assert running.bring(lambda: True) == []
    assert [one.table for one in running.progress()] == [FOUND, "payments", "shop_orders"]


def test_a_table_that_appears_is_made_and_a_restart_knows_it(world: InFiles) -> None:
    config = config_of(world, exclude=[r".*\.tmp_.*"])
    insert(world, "orders")
    world.replicate()
    running = TypedTables(world.spark, config)
    assert running.bring(lambda: True) == []
    insert(world, "refunds", 7)
    insert(world, "tmp_1")
    insert(world, "orders", 2)
    world.replicate()
    assert running.bring(lambda: True) == []
    assert [one.table for one in running.progress()] == [FOUND, "shop_orders", "shop_refunds"]
    assert names(world, "shop_refunds") == [("7", "shop.refunds")]
    assert [one.name for one in listed(config)][-3:] == [FOUND, "shop_orders", "shop_refunds"]
    assert "name" in [one.name for one in described("shop_refunds", config).columns or ()]
    insert(world, "orders", 3)
    assert bring(world, config) == []
    assert [key for key, _ in names(world, "shop_orders")] == ["1", "2", "3"]
    before = world.rows("shop_orders")
    assert drop(world.spark, world.lake, FOUND)  # the log has all that it said
    assert drop(world.spark, world.lake, "shop_orders")
    assert bring(world, config) == []
    assert world.rows("shop_orders") == before
    rebuild(world.spark, world.lake, found_tables(config).tables[1].definition())
    assert world.rows("shop_orders") == before


def test_more_than_the_bound_are_told_and_made_whole_when_it_is_raised(world: InFiles) -> None:
    for name in ("b", "c"):
        insert(world, name)
    assert bring(world, config_of(world, max_tables=2)) == []
    for name in ("a", "b", "d"):
        insert(world, name, 2)
    config = config_of(world, max_tables=2)
    assert bring(world, config) == ["the entry {database}_{table} has found more tables than it may make"]
    assert [key for key, _ in names(world, "shop_b")] == ["1", "2"]
    first, *others = typed_statuses(config)
    assert [one.name for one in others] == ["shop_b", "shop_c"]
    assert "expected max_tables = 2, found 2 more: shop_a, shop_d" in first.flaws[0]
    assert f"  {first.flaws[0]}" in [*status_lines([first])]
    assert bring(world, config_of(world, max_tables=4)) == []
    assert names(world, "shop_a") == [("2", "shop.a")]


def test_a_name_has_one_table(world: InFiles) -> None:
    """Of two that claim it the one by which it was made; if none was, neither is; the others go on."""
    insert(world, "orders")
    assert bring(world, config_of(world)) == []
    insert(world, "Orders", 2)
    insert(world, "a-b")
    insert(world, "a_b")
    insert(world, "mine")
    insert(world, "orders", 3)
    own = {"name": "shop_mine", "from": ["other"]}
    config = config_of(world, own)
    assert sorted(bring(world, config)) == [
        "two typed tables cannot be called shop_a_b", "two typed tables cannot be called shop_a_b",
        "two typed tables cannot be called shop_mine", "two typed tables cannot be called shop_orders",
    ]  # fmt: skip
    assert names(world, "shop_orders") == [("1", "shop.orders"), ("3", "shop.orders")]
    assert [one.name for one in found_tables(config).tables] == ["{database}_{table}", "shop_orders", "shop_mine"]
    told = [str(one) for one in found_tables(config).flaws["{database}_{table}"]]
    assert any("found that of another entry" in one for one in told)
    assert any("found that of shop.a_b by" in one for one in told)


@pytest.mark.parametrize(
    ("table", "more", "found"),
    [
        ("orders", {"pkNames": None}, "no primary key in its newest event"),
        ("2026", {}, "name: small letters"),
        ("records", {}, "which every replica has"),
    ],
)
def test_what_can_have_no_table_is_told(world: InFiles, table: str, more: dict[str, Any], found: str) -> None:
    insert(world, table, **more)
    insert(world, "good")
    config = config_of(world, name="{table}")
    assert bring(world, config) == [f"no typed table can be made of shop.{table}, by the entry {{table}}"]
    assert found in str(found_tables(config).flaws["{table}"][0])
    assert names(world, "good") == [("1", "shop.good")]


def test_a_key_of_the_entry_is_that_of_all(world: InFiles) -> None:
    insert(world, "orders", pkNames=None)
    insert(world, "orders", pkNames=None)
    assert bring(world, config_of(world, key=["id"])) == []
    assert len(world.rows("shop_orders")) == 1


def test_a_key_is_the_same_in_another_order(world: InFiles) -> None:
    insert(world, "orders", pkNames=["id", "name"])
    assert bring(world, config_of(world)) == []
    insert(world, "orders", 2, pkNames=["name", "id"])
    assert bring(world, config_of(world)) == []
    assert [key for key, _ in names(world, "shop_orders")] == ["1", "2"]


def test_another_key_at_the_source_stops_its_table_until_it_is_made_anew(world: InFiles) -> None:
    insert(world, "orders")
    insert(world, "good")
    world.replicate()
    running = TypedTables(world.spark, config_of(world))
    assert running.bring(lambda: True) == []
    insert(world, "orders", 2, pkNames=["name"])
    insert(world, "good", 2)
    world.replicate()
    (told,) = running.bring(lambda: True)
    assert "made by another definition" in str(told)
    assert [key for key, _ in names(world, "shop_good")] == ["1", "2"]
    (of,) = [one.definition() for one in found_tables(config_of(world)).tables if one.name == "shop_orders"]
    rebuild(world.spark, world.lake, of)
    assert bring(world, config_of(world)) == []
    assert names(world, "shop_orders") == [("2", "shop.orders")]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(3))
def test_killed_at_any_commit(world: InFiles, at: int, is_after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tables that were found, and of those that are made of them."""
    insert(world, "orders")
    insert(world, "refunds", 2)
    world.replicate()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        at_each(patch, TypedTable, "commit", Mock(side_effect=[*[None] * at, KeyboardInterrupt]), after=is_after)
        TypedTables(world.spark, config_of(world)).bring(lambda: True)
    assert bring(world, config_of(world)) == []
    assert names(world, "shop_orders") == [("1", "shop.orders")]
    assert names(world, "shop_refunds") == [("2", "shop.refunds")]


def test_one_that_cannot_be_read_does_not_stop_those_that_are_known(
    world: InFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(world, "orders")
    world.replicate()
    running = TypedTables(world.spark, config_of(world))
    assert running.bring(lambda: True) == []
    insert(world, "orders", 2)
    world.replicate()

    monkeypatch.setattr("pipeline.job.typed_tables.found_tables", Mock(side_effect=LogtwinError("gone")))
    assert [one.problem for one in running.bring(lambda: True)] == ["gone"]
    assert len(world.rows("shop_orders")) == 2


def test_beside_logs_that_go_on(world: InFiles) -> None:
    insert(world, "orders")
    world.replicate()
    running = TypedTables(world.spark, config_of(world).model_copy(update={"trigger_interval_s": 0.1}))
    running.start()
    try:
        for number, table in enumerate(("refunds", "orders", "new"), 2):
            insert(world, table, number)
            world.replicate()
            wait_until(partial(has_row, world, running, f"shop_{table}", number), table)
    finally:
        running.stop()
    assert [one.error for one in running.progress()] == [None] * 4


def has_row(world: InFiles, running: TypedTables, table: str, key: int) -> bool:
    is_followed = any(one.table == table and one.rows for one in running.progress())
    return is_followed and any(row["id"] == key for row in world.rows(table))


@pytest.mark.spark
def test_by_a_job_and_its_verbs(
    served: Served, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_to_verbs(spark, monkeypatch)
    file = written(served, tmp_path, "")
    says = Verbs(file)
    code, entry = says("add", "--from", "shop", "--format", "canal", "--name", "{database}_{table}")
    assert code == 0
    with file.open("a") as opened:
        opened.write(entry)
    assert says("add", "--from", "shop", "--format", "canal", "--name", "{table}", "--declare")[0] == 2
    assert "0 tables found so far" in says("check", of=("config",))[1]
    for number, table in enumerate(("orders", "orders", "refunds"), 1):
        insert(served, table, number)
    insert(served, "Refunds", pkNames=None)
    with pytest.raises(LogtwinError, match=r"no typed table can be made of shop\.Refunds"):
        replicate_now(spark, load(file))
    assert names(served, "shop_refunds") == [("3", "shop.refunds")]
    code, text = says("list")
    assert (code, f"{FOUND}: upsert, from shop\n  3 rows" in text, text.count("up to date")) == (0, True, 3)
    assert text.count("no typed table can be made of shop.Refunds") == 1
    assert "warning" in says("check", of=("config",))[1]
    before = served.rows("shop_orders")
    assert says("rebuild", "shop_orders")[1].startswith("shop_orders: rebuilt, generation 2")
    assert served.rows("shop_orders") == before
    assert says("retry", "shop_orders")[0] == 0
    code, text = says("check")
    assert (code, [line.partition(",")[0] for line in text.splitlines()]) == (
        0, [f"{FOUND}: equal", "shop_orders: equal", "shop_refunds: equal"],
    )  # fmt: skip
    assert says("rebuild", "shop_other")[0] == 2
    assert says("drop", "shop_refunds", "--yes") == (0, "shop_refunds: deleted\n")
