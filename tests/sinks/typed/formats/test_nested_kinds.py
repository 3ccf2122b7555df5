"""The kinds of fields with parts, as Avro, protobuf and JSON Schema say them, and values of such columns."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sinks.typed.columns import Column
from sinks.typed.formats.avro import Avro
from sinks.typed.formats.canal import Canal
from sinks.typed.formats.debezium import Debezium
from sinks.typed.formats.json_fields import Fields
from sinks.typed.formats.json_schema import nested_kinds
from sinks.typed.formats.maxwell import Maxwell
from sinks.typed.formats.nested_values import column_of
from sinks.typed.formats.protobuf import of_descriptor_set
from sinks.typed.kinds import MOST_PARTS
from sources.errors import ConfigurationError
from tests.sinks.typed.formats.columns import wanted
from tests.sinks.typed.formats.test_avro import encoded, record
from tests.sinks.typed.formats.test_canal import event as canal
from tests.sinks.typed.formats.test_debezium import event as debezium
from tests.sinks.typed.formats.test_maxwell import event as maxwell
from tests.sinks.typed.formats.test_protobuf import FILE, Order, in_base64, of_set


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}


def values(fields: Fields, kinds: dict[str, str]) -> dict[str, Any]:
    found = {}
    for name, kind in kinds.items():
        _, array, misfits = column_of([fields], Column(name, name, kind))
        assert not misfits
        found[name] = array.to_pylist(maps_as_pydicts="strict")[0]
    return found


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
LINE = named("Line", sku="string", amount=["null", MONEY], day={"type": "int", "logicalType": "date"})
NODE = named("Node", value="int", next=["null", "Node"])


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ({"type": "array", "items": LINE}, "array<struct<sku:string,amount:decimal(12,2),day:date>>"),
        (["null", {"type": "map", "values": ["null", "long"]}], "map<string,bigint>"),
        ({"type": "map", "values": {"type": "array", "items": "int"}}, "map<string,array<int>>"),
        ({"type": "array", "items": ["int", "string"]}, "array<json>"),
        (["int", LINE], "json"),
        (NODE, "struct<value:int,next:json>"),
        (named("Twice", a="int", A="int"), "json"),
        (named("Empty"), "json"),
        (named("Wide", **{f"f{number}": "int" for number in range(MOST_PARTS)}), "json"),
        ("bytes", "string"),
    ],
)
def test_avro(type_: Any, kind: str) -> None:
    assert Avro(record(type_), nested=True).kinds["f0"] == kind
    assert Avro(record(type_)).kinds["f0"] == (kind if "<" not in kind else "json")


def test_a_schema_that_unfolds_without_end_is_text() -> None:
    """Each record has ten of the next one: unfolded that is ten thousand million."""
    one: Any = "int"
    for level in range(9):
        one = named(f"R{level}", **{f"f{at}": f"R{level - 1}" if at and level else one for at in range(10)})
    assert Avro(record(one), nested=True).kinds["f0"] == "json"


def test_values_of_avro() -> None:
    schema = record({"type": "array", "items": LINE}, {"type": "map", "values": ["null", "long"]}, NODE)
    read = Avro(schema, nested=True)
    lines = [
        {"sku": "a", "amount": Decimal("1.25"), "day": date(2026, 11, 28)},
        {"sku": "b", "amount": None, "day": date(1970, 1, 1)},
    ]
    body = {"f0": lines, "f1": {"x": 1 << 60, "y": None}, "f2": {"value": 1, "next": {"value": 2, "next": None}}}
    found = values(read.fields(encoded(schema, body)), dict(read.kinds))
    assert found == {**body, "f2": {"value": 1, "next": '{"value":2,"next":null}'}}


def test_protobuf() -> None:
    read = of_descriptor_set(in_base64(of_set(FILE)), "shop.Order", nested=True)
    line = "struct<sku:string,amount:double>"
    nested = {
        "lines": f"array<{line}>", "numbers": "array<int>", "counts": "map<string,bigint>",
        "flags": f"map<string,{line}>",
    }  # fmt: skip
    assert {name: read.kinds[name] for name in (*nested, "at", "wrapped", "extra")} == {
        **nested, "at": "timestamp", "wrapped": "decimal(20,0)", "extra": "json"
    }  # fmt: skip
    inner = read.kinds["inner"]
    assert f"lines:{nested['lines']}," in inner
    assert "inner:json," in inner
    order = Order(numbers=[1, 2], counts={"a": 5}, inner=Order(string="x"))
    order.lines.add(sku="s", amount=0.5)
    order.flags[True].sku = "t"
    order.inner.at.FromDatetime(datetime(2026, 11, 28, tzinfo=UTC))
    found = values(read.fields(order.SerializeToString()), {**nested, "inner": inner})
    lines = [{"sku": "s", "amount": 0.5}]
    assert {name: found[name] for name in nested} == {
        "lines": lines, "numbers": [1, 2], "counts": {"a": 5}, "flags": {"true": {"sku": "t", "amount": 0.0}}
    }  # fmt: skip
    of_inner = [found["inner"][name] for name in ("string", "at", "inner")]
    assert of_inner == ["x", datetime(2026, 11, 28, tzinfo=UTC), None]


PARTS = {"n": 1, "tags": ["a", None]}
DECLARED = {"id": "int", "parts": "struct<n:int,tags:array<string>>"}


@pytest.mark.parametrize("sent", [json.dumps(PARTS), PARTS], ids=["text", "object"])
@pytest.mark.parametrize(
    ("read", "event"),
    [
        (Canal, lambda row: canal(row, mysqlType={"id": "int", "parts": "json"})),
        (Canal, lambda row: canal(row, mysqlType={"id": "int", "parts": "text"})),
        (Canal, canal),
        (Debezium, lambda row: debezium("c", row)),
        (Maxwell, lambda row: maxwell(data=row)),
    ],
)
def test_a_column_of_change_events_has_parts_where_it_is_declared(read: Any, event: Any, sent: Any) -> None:
    (row,) = read(wanted(kinds=DECLARED))(json.dumps(event({"id": 1, "parts": sent})).encode())
    assert values(row, {"parts": DECLARED["parts"]}) == {"parts": PARTS}


NUMBER = "integer"
VIP = {"type": "object", "properties": {"vip": {"type": "boolean"}, "any": {}}}
JSON_SCHEMA = {
    "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": ["null", NUMBER]}}}},
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "customer": {"oneOf": [{"type": "null"}, VIP]},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "tree": {"type": "object", "properties": {"below": {"$ref": "#/properties/tree"}}},
        "either": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "elsewhere": {"type": "array", "items": {"$ref": "other.json#/a"}},
        "nowhere": {"type": "array", "items": {"$ref": "#/$defs/gone"}},
        "itself": {"$ref": "#/properties/itself"},
        "open": {"type": "object"},
    },
}  # fmt: skip


def test_json_schema() -> None:
    assert nested_kinds(json.dumps(JSON_SCHEMA)) == {
        "lines": "array<struct<sku:string,n:bigint>>",
        "customer": "struct<vip:boolean,any:json>",
        "prices": "map<string,double>",
        "tree": "struct<below:json>",
        "elsewhere": "array<json>",
        "nowhere": "array<json>",
    }
    assert nested_kinds("true") == {}


@pytest.mark.parametrize("text", ["[", '{"properties": 3}'])
def test_no_json_schema(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a JSON Schema"):
        nested_kinds(text)
