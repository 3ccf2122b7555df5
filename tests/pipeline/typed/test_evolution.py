"""What becomes of a field whose schema changes, case by case: column, rows, dead letters, as three engines read them.

Of each format there is one typed table, with a message before and one after; a case is a field of both. What is
expected is what docs/typed-tables.md says, in the values that were given to json, fastavro and protobuf.
"""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from sinks.typed.definition import Reading
from sources.access.security import Secret
from sources.errors import RegistryUnreachable
from tests.pipeline.typed.in_process import world_in_process
from tests.pipeline.typed.test_steps import kill
from tests.pipeline.typed.world import World, bring, fields
from tests.sinks.typed.formats.test_avro import decimals, encoded, record
from tests.sinks.typed.formats.test_protobuf import field, in_base64, message
from tests.sinks.typed.served_schemas import Served, frame

ABSENT: Final = object()
"""The message does not have the field, or its schema does not."""
INSTANT: Final = datetime(2026, 11, 25, 10, 30, tzinfo=UTC)
TEXT, LONG, INT, DOUBLE, FLAG = pa.string(), pa.int64(), pa.int32(), pa.float64(), pa.bool_()
TIME: Final = pa.timestamp("us", "UTC")
A_STRUCT: Final = pa.struct([("a", INT)])


@dataclass(frozen=True)
class Case:
    """A field: the values of the two messages, and what its column has. `unfit` is the reason of the second one's.

    `was` is the type, by its name here, that the column had at first, if that was another. Without a column the values
    are in `_rest`.
    """

    name: str
    before: Any
    after: Any
    column: pa.DataType | None
    rows: tuple[Any, Any]
    unfit: str | None = None
    was: str | None = None
    avro: tuple[Any, ...] | None = None
    """The types of the field in the schemas that the two messages are written with."""
    declared: str | None = None


LARGE = (1 << 60) + 1
HUGE = 1 << 70

FOUND = [
    Case("added", ABSENT, "x", TEXT, (None, "x")),
    Case("removed", "x", ABSENT, TEXT, ("x", None)),
    Case("kept", "a", "b", TEXT, ("a", "b")),
    Case("null_first", None, 7, LONG, (None, 7)),
    Case("null_later", 7, None, LONG, (7, None)),
    Case("widened", 1, 2.5, DOUBLE, (1.0, 2.5), was="bigint"),
    Case("not_widened", LARGE, 2.5, LONG, (LARGE, None), unfit="not_bigint"),
    Case("narrow", 1.5, 2, DOUBLE, (1.5, 2.0)),
    Case("not_narrow", 1.5, LARGE, DOUBLE, (1.5, None), unfit="not_double"),
    Case("number_for_text", "12", 12, TEXT, ("12", None), unfit="not_string"),
    Case("text_for_number", 12, "12", LONG, (12, None), unfit="not_bigint"),
    Case("number_for_flag", True, 1, FLAG, (True, None), unfit="not_boolean"),
    Case("beyond", 1, HUGE, LONG, (1, None), unfit="not_bigint"),
    Case("beyond_first", HUGE, 1, LONG, (None, 1)),
    Case("a name", 1, "x", None, (1, "x")),
    Case("nested", {"a": 1}, {"a": {"b": [2]}, "c": "x"}, TEXT, ({"a": 1}, {"a": {"b": [2]}, "c": "x"})),
    Case("array", [1, 2], ["x", {"y": None}], TEXT, ([1, 2], ["x", {"y": None}])),
    Case("map", {"k1": 1.5}, {"k2": 2}, TEXT, ({"k1": 1.5}, {"k2": 2})),
    Case("object_for_number", 1, {"a": 1}, LONG, (1, None), unfit="not_bigint"),
    Case("number_for_object", {"a": 1}, 5, TEXT, ({"a": 1}, 5)),
]
DECLARED = [
    Case("unnamed", 1, 2, None, (1, 2)),
    Case("small", 7, 1 << 31, INT, (7, None), declared="int", unfit="not_int"),
    Case("zoned", "2026-11-25T10:30:00Z", "2026-11-25T12:30:00+02:00", TIME, (INSTANT, INSTANT), declared="timestamp"),
    Case("zoneless", "2026-11-25T10:30:00Z", "2026-11-25T10:30:00", TIME, (INSTANT, None), declared="timestamp",
         unfit="not_timestamp"),
    Case("millis", 1764066600000, 1764066600500, TIME,
         (INSTANT - timedelta(days=365), INSTANT - timedelta(days=365) + timedelta(milliseconds=500)),
         declared="timestamp_ms"),
    Case("day", "2026-11-25", "2026-13-01", pa.date32(), (date(2026, 11, 25), None), declared="date", unfit="not_date"),
    Case("price", "1.25", 2.5, pa.decimal128(10, 2), (Decimal("1.25"), Decimal("2.50")), declared="decimal(10,2)"),
    Case("finer", 1.25, "1.255", pa.decimal128(10, 2), (Decimal("1.25"), None), declared="decimal(10,2)",
         unfit="not_decimal(10,2)"),
    Case("anything", [1], "x", TEXT, ([1], "x"), declared="json"),
    Case("whole", {"a": 1}, 5, A_STRUCT, ({"a": 1}, None), declared="struct<a:int>", unfit="not_struct"),
    Case("list", [{"a": 1}, None], [], pa.list_(A_STRUCT), ([{"a": 1}, None], []), declared="array<struct<a:int>>"),
    Case("names", {"k": "1.5"}, {}, pa.map_(TEXT, pa.decimal128(5, 2)), ({"k": Decimal("1.50")}, {}),
         declared="map<string,decimal(5,2)>"),
]  # fmt: skip
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))


def of_record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields]}


def states(*symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": "State", "symbols": list(symbols)}


AVRO = [
    Case("added", ABSENT, "x", TEXT, (None, "x"), avro=(ABSENT, "string")),
    Case("removed", "x", ABSENT, TEXT, ("x", None), avro=("string", ABSENT)),
    Case("kept", "a", "b", TEXT, ("a", "b"), avro=("string", "string")),
    Case("old_name", "a", ABSENT, TEXT, ("a", None), avro=("string", ABSENT)),
    Case("new_name", ABSENT, "b", TEXT, (None, "b"), avro=(ABSENT, "string")),  # with old_name for its alias
    Case("int_to_long", 1, LARGE, LONG, (1, LARGE), avro=("int", "long")),
    Case("long_to_double", 1, 2.5, DOUBLE, (1.0, 2.5), avro=("long", "double"), was="bigint"),
    Case("float_to_double", 0.5, 0.1, DOUBLE, (0.5, 0.1), avro=("float", "double")),
    Case("double_to_long", 1.5, LARGE, DOUBLE, (1.5, None), avro=("double", "long"), unfit="not_double"),
    Case("null_first", None, 7, LONG, (None, 7), avro=(["null", "long"], ["null", "long"])),
    Case("null_later", 7, None, LONG, (7, None), avro=("long", ["null", "long"])),
    Case("state", "NEW", "SHIPPED", TEXT, ("NEW", "SHIPPED"), avro=(states("NEW"), states("NEW", "SHIPPED"))),
    Case("nested", {"a": 1}, {"a": 2, "b": "x"}, TEXT, ({"a": 1}, {"a": 2, "b": "x"}),
         avro=(of_record("N", ("a", "int")), of_record("N", ("a", "int"), ("b", "string")))),
    Case("array", [1], ["x"], TEXT, ([1], ["x"]),
         avro=({"type": "array", "items": "int"}, {"type": "array", "items": "string"})),
    Case("map", {"k": 1}, {"l": 2.5}, TEXT, ({"k": 1}, {"l": 2.5}),
         avro=({"type": "map", "values": "int"}, {"type": "map", "values": "double"})),
    Case("union", 1, "x", TEXT, (1, "x"), avro=(["int", "string"], ["int", "string", "boolean"])),
    Case("price", Decimal("1.25"), Decimal("2.5"), pa.decimal128(6, 2), (Decimal("1.25"), Decimal("2.50")),
         avro=(decimals(6, 2), decimals(8, 1))),
    Case("finer", Decimal("1.25"), Decimal("1.255"), pa.decimal128(6, 2), (Decimal("1.25"), None),
         avro=(decimals(6, 2), decimals(8, 3)), unfit="not_decimal(6,2)"),
    Case("at", INSTANT, INSTANT + timedelta(microseconds=7), TIME, (INSTANT, INSTANT + timedelta(microseconds=7)),
         avro=(MILLIS, MICROS)),
]  # fmt: skip


def lines(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return of_record(name, ("a", "int")), of_record(name, ("b", "string"), ("a", "int"))


GROWN = pa.struct([("a", LONG), ("b", TEXT)])
NESTED = [
    Case("struct", {"a": 1}, {"a": 2, "b": "x"}, GROWN, ({"a": 1, "b": None}, {"a": 2, "b": "x"}),
         avro=lines("Struct"), was="struct<a:bigint>"),
    Case("list", [{"a": 1}], [{"a": 2, "b": "x"}], pa.list_(GROWN), ([{"a": 1, "b": None}], [{"a": 2, "b": "x"}]),
         avro=tuple({"type": "array", "items": one} for one in lines("Item")), was="array<struct<a:bigint>>"),
    Case("names", {"k": {"a": 1}}, {"k": {"a": 2, "b": "x"}}, pa.map_(TEXT, pa.struct([("a", LONG)])),
         ({"k": {"a": 1}}, {"k": {"a": 2}}), avro=tuple({"type": "map", "values": one} for one in lines("Value"))),
    Case("late", None, {"a": 2, "b": "x"}, pa.struct([("b", TEXT), ("a", LONG)]), (None, {"b": "x", "a": 2}),
         avro=tuple(["null", one] for one in lines("Late"))),
    Case("texts", [1], ["x"], pa.list_(LONG), ([1], [None]), unfit="not_bigint",
         avro=({"type": "array", "items": "int"}, {"type": "array", "items": "string"})),
    Case("union", {"a": 1}, 5, TEXT, ({"a": 1}, 5), avro=tuple(["int", one] for one in lines("One"))),
]  # fmt: skip
PROTOBUF = [
    Case("added", ABSENT, "x", TEXT, (None, "x")),
    Case("unset", ABSENT, ABSENT, LONG, (None, 0)),  # a field of proto3 that does not know whether it is set
    Case("removed", "x", ABSENT, TEXT, ("x", None)),
    Case("kept", "a", "b", TEXT, ("a", "b")),
    Case("wider", 1, LARGE, LONG, (1, LARGE)),
    Case("at", INSTANT, INSTANT + timedelta(microseconds=7), TIME, (INSTANT, INSTANT + timedelta(microseconds=7))),
]
ALL = {"found": FOUND, "declared": DECLARED, "avro": AVRO, "nested": NESTED, "protobuf": PROTOBUF}


def of_json(cases: Sequence[Case], at: int) -> bytes:
    """The second message has its fields the other way round."""
    values = {one.name: (one.before, one.after)[at] for one in (cases, cases[::-1])[at]}
    return json.dumps({name: value for name, value in values.items() if value is not ABSENT}).encode()


def of_avro(cases: Sequence[Case], at: int) -> tuple[str, bytes]:
    """The schema, whose fields stand the other way round in the second one, and a body."""
    fields: list[dict[str, Any]] = [
        {"name": one.name, "type": one.avro[at]}
        for one in (cases, cases[::-1])[at]
        if one.avro is not None and one.avro[at] is not ABSENT
    ]
    for one in fields:
        if one["name"] == "new_name":
            one["aliases"] = ["old_name"]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    values = {one.name: (one.before, one.after)[at] for one in cases}
    return schema, encoded(schema, {one["name"]: values[one["name"]] for one in fields})


def of_protobuf(at: int) -> tuple[str, bytes]:
    """The descriptor of the schema, in base64, and a body."""
    fields = [
        field("kept", 1, "string"),
        field("wider", 2, ("int32", "int64")[at]),
        field("at", 9, ".google.protobuf.Timestamp"),
        *(
            (field("removed", 10, "string"),)
            if at == 0
            else (field("unset", 12, "int64"), field("added", 11, "string"))
        ),
    ]
    order = message("Order", *(fields, fields[::-1])[at])
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.append(order)
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    made: Any = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    for one in PROTOBUF:
        value = (one.before, one.after)[at]
        if one.name == "at":
            made.at.FromDatetime(value)
        elif value is not ABSENT:
            setattr(made, one.name, value)
    return in_base64(file), made.SerializeToString()


@dataclass(frozen=True)
class Read:
    """A typed table after both messages, as each engine has it: rows by offset."""

    schema: pa.Schema
    rows: dict[str, list[dict[str, Any]]]
    unfit: list[tuple[str, str, int]]
    changes: list[tuple[str, str, str | None, str]]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Read]:
    """Each table is brought on once for each message."""
    with closing(Served()) as served, world_in_process(tmp_path_factory.mktemp("evolution")) as world:
        how: dict[str, dict[str, Any]] = {
            "found": {},
            "declared": {"schema": {one.name: one.declared for one in DECLARED if one.declared is not None}},
            "avro": {"reading": Reading(format="avro", registry=served.url)},
            "nested": {"reading": Reading(format="avro", registry=served.url, nested=True)},
            "protobuf": {"reading": Reading(format="protobuf", registry=served.url)},
        }
        followers = {name: world.follower(name=name, topics=(name,), **more) for name, more in how.items()}
        for at in range(2):
            (avro, avro_body), (proto, proto_body) = of_avro(AVRO, at), of_protobuf(at)
            nested, nested_body = of_avro(NESTED, at)
            served.answers[f"/schemas/ids/{at}"] = 200, {"schema": avro}
            served.answers[f"/schemas/ids/{at + 4}"] = 200, {"schema": nested}
            answer = {"schema": proto, "schemaType": "PROTOBUF"}
            served.answers[f"/schemas/ids/{at + 2}?format=serialized"] = 200, answer
            world.send(of_json(FOUND, at), topic="found")
            world.send(of_json(DECLARED, at), topic="declared")
            world.send(frame(at, avro_body), topic="avro")
            world.send(frame(at + 4, nested_body), topic="nested")
            world.send(frame(at + 2, b"\0" + proto_body), topic="protobuf")
            world.replicate()
            for one in followers.values():
                bring(one)
        return {name: as_read(world, name) for name in followers}


def as_read(world: World, name: str) -> Read:
    path = f"{world.lake}/tables/{name}"
    table = DeltaTable(path).to_pyarrow_table().sort_by("offset")
    offsets = table["offset"].to_pylist()
    unfit = [
        (row["column"], row["reason"], offsets.index(row["offset"])) for row in world.unfit() if row["table"] == name
    ]
    changes = DeltaTable(f"{world.lake}/schema_changes").to_pyarrow_table(filters=[("table", "=", name)])
    return Read(
        schema=table.schema,
        rows={
            "delta-rs": table.to_pylist(),
            "Polars": polars.scan_delta(path).sort("offset").collect().to_dicts(),
            "DuckDB": duckdb.from_arrow(table).to_arrow_table().to_pylist(),
        },
        unfit=unfit,
        changes=[
            (row["column"], row["change"], row["was"], row["type"]) for row in changes.sort_by("number").to_pylist()
        ],
    )


@pytest.mark.parametrize(
    ("name", "case"),
    [pytest.param(name, one, id=f"{name}-{one.name}") for name, several in ALL.items() for one in several],
)
def test_a_field(read: dict[str, Read], name: str, case: Case) -> None:
    table = read[name]
    assert [(reason, at) for column, reason, at in table.unfit if column == case.name] == (
        [] if case.unfit is None else [(case.unfit, 1)]
    )
    if case.column is None:
        assert case.name not in table.schema.names
        for rows in table.rows.values():
            assert tuple(json.loads(row["_rest"])[case.name] for row in rows) == case.rows
        return
    assert table.schema.field(case.name).type == case.column
    of_this = [(change, was) for column, change, was, _ in table.changes if column == case.name]
    widened = [] if case.was is None else [("grown" if name == "nested" else "widened", case.was)]
    assert of_this == ([] if case.declared is not None else [("added", None), *widened])
    is_json = any(isinstance(one, dict | list) for one in case.rows) or case.declared == "json" or case.name == "union"
    is_json = is_json and case.column == TEXT
    for engine, rows in table.rows.items():
        found = tuple(row[case.name] for row in rows)
        if is_json:
            found = tuple(json.loads(one) for one in found)
        if pa.types.is_map(case.column):
            found = tuple(dict(one) for one in found)
        assert found == case.rows, engine


def test_nothing_else_is_there(read: dict[str, Read]) -> None:
    """Neither a column nor a dead letter that no case asks for; what has no column is in `_rest`, and nothing more."""
    for name, cases in ALL.items():
        table = read[name]
        place = {"log_id", "offset", "batch_index", "stored_at", "_rest"}
        assert set(table.schema.names) - place == {one.name for one in cases if one.column is not None}
        assert {column for column, _, _ in table.unfit} == {one.name for one in cases if one.unfit is not None}
        rest = [json.loads(row["_rest"] or "{}") for row in table.rows["delta-rs"]]
        without = {one.name for one in cases if one.column is None}
        left = {"found": ({"beyond_first"}, set()), "nested": (set(), {"names"})}.get(name, (set(), set()))
        assert [set(one) for one in rest] == [without | more for more in left]


OLD = record("string", "int")
NEW = record("string", "long", ["null", {"type": "long", "logicalType": "timestamp-millis"}])
MOMENT = datetime(2026, 11, 25, 10, 30, tzinfo=UTC)
LARGE = 1 << 40


def test_what_did_not_fit_is_taken_once_more(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry learns a schema after its messages came; another one still does not fit, with a row for its rest."""
    old, new = encoded(OLD, {"f0": "a", "f1": 1}), encoded(NEW, {"f0": "b", "f1": LARGE, "f2": MOMENT})
    (tmp_path / "key").write_text("k")
    with closing(Served()) as served:
        served.answers["/schemas/ids/1"] = 200, {"schema": OLD}
        served.answers["/schemas/ids/3"] = 200, {"schema": record("string", "string")}
        how: dict[str, Any] = {"reading": Reading(format="avro", registry=served.url)}
        keyed = {"name": "by_key", "key": ("f0",), **how}
        misfit = encoded(record("string", "string"), {"f0": "c", "f1": "text"})
        world.send(frame(1, old), frame(2, new), frame(3, misfit), frame(9, old))
        served.answers["/schemas/ids/2"] = 503, {}
        with pytest.raises(RegistryUnreachable, match="503"):
            world.follow(**how)
        del served.answers["/schemas/ids/2"]
        world.follow(**how)
        world.follow(**keyed)
        unfit = [(row["table"], row["reason"]) for row in world.unfit()]
        assert sorted(unfit) == [(name, reason) for name in ("by_key", "orders")
                                 for reason in ("not_bigint", "unknown_schema", "unknown_schema")]  # fmt: skip

        served.answers["/schemas/ids/2"] = 200, {"schema": NEW}
        # As somebody else, whose tasks have not been told yet that there is no such schema
        key = Secret(f"file:{tmp_path}/key")
        other: dict[str, Any] = {"reading": Reading(format="avro", registry=served.url, username=key, password=key)}
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            kill(patched, "commit")  # between its dead letters, which are gone then, and its commit
            world.follower(**other).retry()
        world.follower(**other).bring_to_end()
        for how_now, taken in ((other, 2), ({**keyed, **other}, 2)):
            follower = world.follower(**how_now)
            assert follower.retry() == taken
            follower.bring_to_end()
    expected = [{"f0": "a", "f1": 1}, {"f0": "b", "f1": LARGE, "f2": MOMENT}, {"f0": "c"}]
    assert fields(world.rows()) == expected
    assert fields(world.rows("by_key")) == expected
    left = [(row["table"], row["reason"]) for row in world.unfit()]
    assert sorted(left) == [(name, reason) for name in ("by_key", "orders")
                            for reason in ("not_bigint", "unknown_schema")]  # fmt: skip
