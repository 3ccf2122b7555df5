"""Tables of change events, step by step: what stood in the database stands in them."""

import gzip
import json
import random
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from pipeline.config.typed_tables import TypedTableConfig
from sinks.typed.definition import Definition
from sinks.typed.rebuild import rebuild
from sinks.typed.step.follower import TypedFollower
from sources.errors import ReplicaError
from tests.pipeline.typed.world import World, bring, fields
from tests.sinks.typed.formats import test_canal, test_debezium, test_recorded
from tests.sinks.typed.served_schemas import Served

TYPES = {"id": "int(11)", "name": "varchar(20)", "amount": "decimal(12,2)", "day": "date", "big": "bigint unsigned"}


def wanted(form: str, **more: Any) -> Definition:
    said = {"database": "shop", "table": "orders", "mode": "upsert", "key": ["id"], "format": form, **more}
    return TypedTableConfig.model_validate({"name": "orders", "from": ["orders"], **said}).definition()


def follow(world: World, of: Definition) -> None:
    world.replicate()
    bring(TypedFollower(world.spark, world.lake, of))


def there(world: World) -> list[dict[str, Any]]:
    """The rows that are there, by their key, without their place."""
    rows = [row for row in fields(world.rows()) if not row.pop("_deleted")]
    for row in rows:
        row.pop("_source_order", None)
    return sorted(rows, key=lambda row: str(row["id"]))


def canal(type_: str, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return test_canal.event(*rows, type=type_, mysqlType=TYPES, **more)


def test_rows_of_canal(world: World) -> None:
    of = wanted("canal")
    row = {"amount": "10.10", "day": "2026-11-28", "big": "18446744073709551615"}
    world.send(
        canal(
            "INSERT", {"id": "1", "name": "a", **row}, {"id": "2", "name": "b", **row}, {"id": "3", "name": "c", **row}
        ),
        canal("INSERT", {"id": "1", "name": "another"}, table="orders_old"),
        canal("UPDATE", {"id": "2", "name": "B", **row}, old=[{"name": "b"}]),
    )
    follow(world, of)
    value = {"amount": Decimal("10.10"), "day": date(2026, 11, 28), "big": Decimal(2**64 - 1)}
    assert there(world) == [{"id": key, "name": name, **value} for key, name in ((1, "a"), (2, "B"), (3, "c"))]
    world.send(
        canal("UPDATE", {"id": "9", "name": "a", **row}, old=[{"id": "1"}]),
        canal("DELETE", {"id": "3", "name": "c", **row}),
        canal("QUERY", isDdl=True, data=None, sql="ALTER TABLE orders ADD COLUMN note TEXT"),
        canal("UPDATE", {"id": "2", "name": "B", "amount": "many", "note": "n"}, old=[{"amount": "10.10"}]),
        b"broken",
    )
    follow(world, of)
    assert there(world) == [{"id": 2, "name": "B", "note": "n"}, {"id": 9, "name": "a", **value}]
    assert [(row["column"], row["reason"]) for row in world.unfit()] == [
        ("amount", "not_decimal(12,2)"), (None, "not_json"),
    ]  # fmt: skip
    before = world.rows()
    rebuild(world.spark, world.lake, of)
    assert world.rows() == before


@pytest.mark.parametrize("at_once", [False, True])
def test_a_column_holds_what_its_source_has_made_wider(world: World, at_once: bool) -> None:
    """Wherever steps end; a value that fits no kind is unfit."""
    of = wanted("canal")

    def send(key: int, price: str, count: str, **types: str) -> None:
        said = {"id": "decimal(3,0)", "amount": "decimal(5,2)", "n": "int(11)", **types}
        row = {"id": str(key), "amount": price, "n": count, "name": "a"}
        world.send(test_canal.event(row, type="INSERT", mysqlType={**said, "name": "varchar(9)"}))
        if not at_once:
            follow(world, of)

    send(1, "999.99", "7")
    send(2, "99999.5", "8", amount="decimal(7,2)")
    send(3, "0.125", str(2**64 - 1), amount="decimal(6,3)", n="bigint(20) unsigned")
    send(1000, "many", "1.5", id="decimal(4,0)", n="decimal(4,1)", amount="varchar(9)")
    send(1, "1.00", "7")
    follow(world, of)
    rows = [(row["id"], row.get("amount"), row["n"]) for row in there(world)]
    assert rows == [
        (1, Decimal("1.000"), 7), (1000, None, Decimal("1.5")), (2, Decimal("99999.500"), 8),
        (3, Decimal("0.125"), 2**64 - 1),
    ]  # fmt: skip
    assert [row["column"] for row in world.unfit()] == ["amount"]
    changes = {(column, change, type_) for column, change, _, type_ in world.changes()}
    last = {("amount", "decimal(8,3)"), ("n", "decimal(21,1)"), ("id", "decimal(4,0)")}
    assert last <= {(column, type_) for column, _, type_ in changes}
    if not at_once:
        assert ("amount", "widened", "decimal(5,2)", "decimal(7,2)") in world.changes()
    before = world.rows()
    rebuild(world.spark, world.lake, of)
    assert world.rows() == before


def test_a_truncate_takes_all_that_is_older(world: World) -> None:
    """Whatever step it is in, and also in a table that is made anew."""
    of = wanted("canal")

    def truncate(table: str = "orders") -> dict[str, Any]:
        return canal("TRUNCATE", isDdl=True, data=None, table=table)

    for number in ("1", "2"):
        world.send(canal("INSERT", {"id": number, "name": "gone"}))
        follow(world, of)
    world.send(canal("INSERT", {"id": "3", "name": "gone"}), truncate(), canal("INSERT", {"id": "1", "name": "new"}))
    follow(world, of)
    assert there(world) == [{"id": 1, "name": "new"}]
    assert len(world.rows()) == 1
    world.send(truncate("orders_old"))
    follow(world, of)
    assert len(world.rows()) == 1
    world.send(truncate())
    follow(world, of)
    assert world.rows() == []
    world.send(canal("INSERT", {"id": "4", "name": "newer"}))
    follow(world, of)
    rebuild(world.spark, world.lake, of)
    assert there(world) == [{"id": 4, "name": "newer"}]


def test_deleted_rows_that_are_kept(world: World) -> None:
    """With what they were, until the key comes back; a key that has changed, too."""
    of = wanted("canal", keep_deleted=True, mask={"name": "redact"})
    for number in ("1", "2", "3"):
        world.send(canal("INSERT", {"id": number, "name": "secret", "amount": "10.10"}))
    follow(world, of)
    assert all(row["_deleted_at"] is None for row in world.rows())
    world.send(
        canal("DELETE", {"id": "1", "name": "secret", "amount": "10.20"}),
        canal("DELETE", {"id": "2", "name": "secret", "amount": "10.10"}),
        canal("UPDATE", {"id": "4", "name": "secret", "amount": "10.10"}, old=[{"id": "3"}]),
        canal("INSERT", {"id": "2", "name": "secret", "amount": "1.00"}),
    )
    follow(world, of)
    rows = world.rows()
    assert {(row["id"], row["amount"], row["name"], row["_deleted_at"] == row["stored_at"]) for row in rows} == {
        (1, Decimal("10.20"), "***", True), (2, Decimal("1.00"), "***", False), (3, Decimal("10.10"), "***", True),
        (4, Decimal("10.10"), "***", False),
    }  # fmt: skip
    assert "_deleted" not in rows[0]
    rebuild(world.spark, world.lake, of)
    assert world.rows() == rows


def debezium(op: str, key: int, name: str | None, pos: int, **source: Any) -> dict[str, Any]:
    row = {"id": key, "name": name, "at": pos * 1_000_000}
    event = test_debezium.event(op, None if op == "d" else row, row if op == "d" else None, pos=pos, **source)
    at = test_debezium.named("int64", "io.debezium.time.MicroTimestamp")
    columns = {"type": "int32", "field": "id"}, {"type": "string", "field": "name"}, {**at, "field": "at"}
    return test_debezium.with_schema({**event, **({"after": None, "before": None} if op == "t" else {})}, *columns)


def test_rows_of_debezium_in_whatever_order_they_come(world: World) -> None:
    """Also a deletion, and what came before the table was emptied."""
    events = [
        debezium("c", 1, "lost", 1), debezium("t", 0, None, 2), debezium("c", 1, "old", 3), debezium("u", 1, "new", 4),
        debezium("c", 2, "x", 5), debezium("d", 2, "x", 6), debezium("c", 3, "y", 7), debezium("d", 3, "y", 8),
        debezium("c", 3, "z", 9), debezium("u", 3, "other", 10, table="other"), {"ts_ms": 1},
    ]  # fmt: skip
    expected = [
        {"id": 1, "name": "new", "at": datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)},
        {"id": 3, "name": "z", "at": datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)},
    ]
    for seed in range(3):
        random.Random(seed).shuffle(events)
        for number in range(0, len(events), 4):
            world.send(*events[number : number + 4], topic=f"t{seed}")
            world.replicate()
            of = TypedTableConfig.model_validate(
                {"name": "orders", "from": [f"t{seed}"], "format": "debezium", "database": "shop", "table": "orders",
                 "mode": "upsert", "key": ["id"]}
            ).definition()  # fmt: skip
            if number == 0 and seed:
                rebuild(world.spark, world.lake, of)
            bring(TypedFollower(world.spark, world.lake, of))
        assert there(world) == expected, seed
    assert world.unfit() == []


def test_two_servers_stop_the_table_until_the_log_decides(world: World) -> None:
    world.send(debezium("c", 1, "of the first", 900))
    follow(world, wanted("debezium"))
    world.send(debezium("u", 1, "of the second", 5, server_id=7))
    with pytest.raises(ReplicaError, match='order = "log"') as caught:
        follow(world, wanted("debezium"))
    assert "two servers" in str(caught.value)
    assert [row["name"] for row in there(world)] == ["of the first"]
    rebuild(world.spark, world.lake, wanted("debezium", order="log"))
    assert [row["name"] for row in there(world)] == ["of the second"]


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_recorded_events_in_the_forms_that_are_not_json(world: World, mode: str) -> None:
    """Debezium's converter is changed amid them; Canal sends packets."""
    registered = json.loads(
        gzip.decompress((test_recorded.RECORDED / "debezium-mariadb/registered.json.gz").read_bytes())
    )
    said = {"name": "orders", "database": "shop", "table": "customers", "mode": mode, "key": ["id"]}
    with closing(Served()) as served:
        served.answers |= {f"/schemas/ids/{number}": (200, {"schema": text}) for number, text in registered.items()}
        json_first, then_avro = ([*test_recorded.bodies(f"debezium-mariadb/{one}")] for one in ("schemas", "avro"))
        middle = len(json_first) // 2
        for name, form, more, bodies in (
            ("debezium-mariadb/avro", "debezium", {"schema": served.url}, json_first[:middle] + then_avro[middle:]),
            ("canal/packets", "canal", {"order": "source"}, [*test_recorded.bodies("canal/packets")]),
        ):
            world.send(*bodies, topic=form)
            world.replicate()
            of = TypedTableConfig.model_validate({**said, "from": [form], "format": form, **more}).definition()
            if form == "canal":
                rebuild(world.spark, world.lake, of)
            bring(TypedFollower(world.spark, world.lake, of))
            expected = test_recorded.tables(name)["customers"]
            rows = [row for row in there(world) if "_valid_to" not in row]
            found = {str(row["id"]): row for row in rows}
            assert len(found) == len(rows)
            assert {*found} == {row["id"] for row in expected["rows"]}
            for row in expected["rows"]:
                for column, type_ in expected["columns"].items():
                    assert test_recorded.is_equal(type_, found[row["id"]].get(column), row[column]), (name, column)


def test_rows_of_maxwell(world: World) -> None:
    of = wanted("maxwell", schema={"id": "bigint", "name": "string", "at": "timestamp"})

    def event(type_: str, key: int, name: str, **more: Any) -> dict[str, Any]:
        data = {"id": key, "name": name, "at": "2026-11-28 10:00:00"}
        return {"database": "shop", "table": "orders", "type": type_, "ts": 1, "data": data, **more}

    world.send(event("bootstrap-insert", 1, "a"), event("insert", 2, "b"), event("bootstrap-complete", 0, ""))
    world.send(event("update", 3, "b", old={"id": 2}), event("delete", 1, "a"), event("insert", 1, "c", table="other"))
    follow(world, of)
    assert there(world) == [{"id": 3, "name": "b", "at": datetime(2026, 11, 28, 10, tzinfo=UTC)}]
    assert [(row["id"], row["name"]) for row in world.rows() if row["_deleted"]] == [(2, None), (1, None)]
