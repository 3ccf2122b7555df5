"""Tables with a row for each change, step by step, and as other engines read them (`docs/change-tables.md`)."""

import random
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable

from pipeline.config.typed_tables import TypedTableConfig
from pipeline.operate.typed_tables import checked, overlapping
from sinks.typed.definition import Definition
from sinks.typed.rebuild import rebuild
from sinks.typed.step import upsert
from sinks.typed.step.follower import TypedFollower
from sinks.views.registration import register
from tests.documents import blocks
from tests.pipeline.running import job_config
from tests.pipeline.typed.test_changes import canal, debezium, follow
from tests.pipeline.typed.test_steps import kill
from tests.pipeline.typed.world import InFiles, World, bring

DOCUMENT = "docs/change-tables.md"
NOON_MS = 1_795_867_200_000  # 2026-11-28 12:00 UTC


def history(form: str, **more: Any) -> TypedTableConfig:
    said = {"database": "shop", "table": "orders", "mode": "history", "key": ["id"], "format": form, **more}
    return TypedTableConfig.model_validate({"name": "orders", "from": ["orders"], **said})


def wanted(form: str, **more: Any) -> Definition:
    return history(form, **more).definition()


def seconds(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() - NOON_MS / 1000)


def told(world: World) -> list[tuple[Any, ...]]:
    """Key, name, from and to of each row, in seconds since noon; of deletions without a name."""
    rows = world.rows()
    assert all(row["_deleted"] == (row["name"] is None) for row in rows)
    found = ((row["id"], row["name"], seconds(row["_valid_from"]), seconds(row["_valid_to"])) for row in rows)
    return sorted(found, key=str)


def at(second: int, op: str, key: int, name: str | None) -> dict[str, Any]:
    return debezium(op, key, name, second, ts_ms=NOON_MS + second * 1000, ts_us=(NOON_MS + second * 1000) * 1000)


def files(world: World) -> set[str]:
    return {*DeltaTable(f"{world.lake}/tables/orders").file_uris()}


EVENTS = [
    at(1, "c", 1, "a"), at(2, "c", 2, "b"), at(3, "u", 1, "A"), at(4, "t", 0, None), at(5, "c", 1, "new"),
    at(6, "d", 1, "new"), at(7, "c", 3, "c"), at(8, "c", 1, "again"), at(9, "u", 3, "C"),
]  # fmt: skip
ROWS = [
    (1, "A", 3, 4), (1, "a", 1, 3), (1, "again", 8, None), (1, "new", 5, 6), (1, None, 6, 6), (2, "b", 2, 4),
    (3, "C", 9, None), (3, "c", 7, 9),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_each_change_has_its_times_however_it_comes(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps, in parts and groups, after a kill, once more, and from the beginning."""
    monkeypatch.setattr(upsert, "_KEYS_A_TASK", 3)
    monkeypatch.setattr(upsert, "_ROWS_A_FILE", 2)
    come = random.Random(seed).sample(EVENTS, len(EVENTS))
    of = wanted("debezium")
    for number in range(0, len(come), 3):
        world.send(*come[number : number + 3], come[0])
        world.replicate()
        with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
            kill(patched, "commit")
            bring(TypedFollower(world.spark, world.lake, of))
        follow(world, of)
    assert told(world) == ROWS
    assert world.unfit() == []
    rebuild(world.spark, world.lake, of)
    assert told(world) == ROWS


def test_of_canal_also_a_key_that_changes_and_two_changes_of_one_second(world: World) -> None:
    """By the log. A file in which no row ends stays as it is."""
    of = wanted("canal")

    def send(second: int, type_: str, *names: str, key: str = "1", **more: Any) -> None:
        for name in names:
            world.send(canal(type_, {"id": key, "name": name}, es=NOON_MS + second * 1000, **more))

    send(1, "INSERT", "other", key="3")
    follow(world, of)
    before = files(world)
    send(1, "INSERT", "x")
    follow(world, of)
    send(2, "UPDATE", "y", "x", "y", old=[{"name": "x"}])
    send(3, "UPDATE", "y", key="2", old=[{"id": "1"}])
    follow(world, of)
    send(2, "UPDATE", "y", old=[{"name": "x"}])  # sent again, as what came after it
    send(3, "UPDATE", "y", key="2", old=[{"id": "1"}])
    send(4, "INSERT", "z", key="4")
    follow(world, of)
    assert told(world) == [
        (1, "x", 1, 2), (1, "x", 2, 2), (1, "y", 2, 3), (1, None, 3, 3), (2, "y", 3, None), (3, "other", 1, None),
        (4, "z", 4, None),
    ]  # fmt: skip
    assert before < files(world)


def test_of_messages_that_are_no_change_events(world: World) -> None:
    """They hold from when they were stored on."""
    said = {"mode": "history", "key": ["id"], "deletes": {"op": ["d"]}}
    of = TypedTableConfig.model_validate({"name": "orders", "from": ["orders"], **said}).definition()
    for bodies in (({"id": 1, "n": 1}, {"id": 2, "n": 1}), ({"id": 1, "n": 2}, {"id": 2, "op": "d"}, {"n": 3})):
        world.send(*bodies)
        follow(world, of)
    first, second, third, fourth = world.rows()
    assert [(row["id"], row["n"]) for row in world.rows()] == [(1, 1), (2, 1), (1, 2), (2, None)]
    assert all(row["_valid_from"] == row["stored_at"] for row in world.rows())
    assert [first["_valid_to"], second["_valid_to"]] == [third["stored_at"], fourth["stored_at"]]
    assert (third["_valid_to"], fourth["_valid_to"], fourth["_deleted"]) == (None, fourth["stored_at"], True)
    assert [row["reason"] for row in world.unfit()] == ["no_key"]


@pytest.mark.nightly
@pytest.mark.spark
def test_every_engine_reads_what_stood_at_a_moment(by_spark: InFiles, tmp_path: Path) -> None:
    """As the document asks for it; and which rows show that a table is not right."""
    table = history("canal", name="customers_history")
    follower = TypedFollower(by_spark.spark, by_spark.lake, table.definition())
    for minute, type_, key, name in (
        (-9, "INSERT", "1", "a"), (-9, "INSERT", "2", "b"), (-8, "INSERT", "3", "c"), (-5, "UPDATE", "1", "A"),
        (-1, "DELETE", "3", "c"), (0, "UPDATE", "2", "B"), (1, "UPDATE", "1", "later"),
    ):  # fmt: skip
        old = [{"name": "?"}] if type_ == "UPDATE" else None
        by_spark.send(canal(type_, {"id": key, "name": name}, es=NOON_MS + minute * 60_000, old=old))
        if minute in (-5, 1):
            by_spark.replicate()
            bring(follower)
    session = by_spark.spark.newSession()
    register(session, by_spark.lake, views=(), tables={table.name})
    python, sql = ([one for one in blocks(DOCUMENT) if one.language == language] for language in ("python", "sql"))
    program = tmp_path / "block.py"
    program.write_text(python[0].text.replace("/data/lake", by_spark.lake))
    of_duckdb = runpy.run_path(str(program))["then"]
    of_spark = session.sql(sql[0].text.rstrip(";\n")).collect()
    noon, start, end = datetime.fromtimestamp(NOON_MS / 1000, UTC), polars.col("_valid_from"), polars.col("_valid_to")
    of_polars = polars.scan_delta(f"{by_spark.lake}/tables/customers_history").filter(
        (start <= noon) & (end.is_null() | (end > noon))
    )
    expected = [(1, "A"), (2, "B")]
    assert sorted((key, name) for key, name, _ in of_duckdb) == expected
    assert sorted((row["id"], row["name"]) for row in of_spark) == expected
    assert sorted(of_polars.select("id", "name").collect().rows()) == expected
    config = job_config(by_spark.lake, **by_spark.options).model_copy(update={"tables": (table,)})
    (verdict,) = checked(by_spark.spark, config, table.name)
    assert (verdict.is_equal, verdict.counts.rows, verdict.counts.deleted) == (True, 6, 1)
    times = [(1, 0, 3), (1, 2, None), (2, 0, 3), (2, 3, 3), (2, 3, None), (3, 0, None), (3, 1, None), (4, 2, 1)]
    rows = by_spark.spark.createDataFrame(times, "id INT, _valid_from INT, _valid_to INT")
    assert {(row["id"], row["_valid_from"]) for row in overlapping(rows, ["id"]).collect()} == {(1, 0), (3, 0), (4, 2)}
