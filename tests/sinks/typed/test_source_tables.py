"""Which tables events are of, by what Debezium, Canal and Maxwell really sent, and what the tables may be called."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from sinks.typed.definition import Reading
from sinks.typed.formats.json_fields import Fields, NoObject
from sinks.typed.patterns import is_meant
from sinks.typed.readers import reader
from sinks.typed.source_tables import OneOfMany, SourceTable, TableNames, add_of_record, exactly, table_key
from tests.sinks.typed.formats.test_recorded import NAMES, lines, tables


def rows(name: str) -> Iterator[Fields]:
    read = reader(Reading(format=name.partition("/")[0].partition("-")[0], finds_tables=True))
    for line in lines(f"{name}.jsonl.gz"):
        said = json.loads(line)
        if said["value"] is None:
            continue
        for one in read(base64.b64decode(said["value"]) if name.endswith("/packets") else said["value"].encode()):
            assert not isinstance(one, str)
            add_of_record(one, said["topic"], (said["key"] or "").encode() or None)
            yield one


@pytest.mark.parametrize("name", [one for one in NAMES if not one.endswith("/avro")])
def test_the_tables_of_a_recorded_stream_and_their_keys(name: str) -> None:
    found = {
        json.loads(bytes(one["table"])): {key: json.loads(bytes(raw)) for key, raw in one.items()} for one in rows(name)
    }
    found.pop("bootstrap", None)  # Maxwell's own
    schema = "public" if name.startswith("debezium-postgresql") else ""
    assert {table.removeprefix("public."): one["primary_key"] for table, one in found.items()} == {
        table: of["key"] for table, of in tables(name).items()
    }
    assert {(one["database"], one["schema"]) for one in found.values()} == {("shop", schema)}
    topics = {one["topic"] for one in found.values()}
    assert len(topics) == (5 if name.startswith("debezium") else 1)


@pytest.mark.parametrize("form", ["canal", "debezium", "maxwell"])
def test_what_is_no_event_is_told_as_its_format_does(form: str) -> None:
    find = reader(Reading(format=form, finds_tables=True))
    for body, reason in (
        (b"broken", "not_json"),
        (b'{"a": 1}', f"not_{form}"),
        (b"\xff", "not_utf8"),
        (None, "no_body"),
    ):
        with pytest.raises(NoObject) as caught:
            find(body)
        assert caught.value.reason == reason
    with pytest.raises(NoObject, match="in JSON alone"):  # of a form that its reader knows
        TableNames(form, lambda _: [])(b"\x00\x01")


@pytest.mark.parametrize(
    ("form", "said", "found"),
    [
        ("canal", {"type": "Insert", "database": "shop", "table": "orders", "data": [{"id": "1"}]}, "type Insert"),
        ("canal", {"type": "INSERT", "database": "shop", "data": [{"id": "1"}]}, "no table"),
        ("debezium", {"op": "x", "source": {"db": "shop", "table": "orders"}}, "op x"),
        ("debezium", {"op": "c", "source": {"db": "shop"}, "after": {"id": 1}}, "no table"),
    ],
)
def test_a_change_of_no_table_and_of_no_known_type_is_told(form: str, said: dict[str, Any], found: str) -> None:
    """No table reads it, unless it has another event that makes it."""
    with pytest.raises(NoObject, match=found) as caught:
        reader(Reading(format=form, finds_tables=True))(json.dumps(said).encode())
    assert caught.value.reason == f"not_{form}"


def test_what_has_no_rows_makes_no_table() -> None:
    canal = reader(Reading(format="canal", finds_tables=True))
    for type_ in ("TRUNCATE", "CREATE"):
        assert canal(json.dumps({"type": type_, "isDdl": True, "database": "a", "table": "b"}).encode()) == []
    assert reader(Reading(format="debezium", finds_tables=True))(b'{"ts_ms": 1}') == []


@pytest.mark.parametrize(
    ("record_key", "columns"),
    [
        (b'{"id": 1, "region": "eu"}', ("id", "region")),
        (b'{"schema": {"type": "struct"}, "payload": {"id": 1}}', ("id",)),
        (b'{"schema": "a", "payload": "b"}', ("schema", "payload")),
        (b"42", ()),
        (b"\xff", ()),
        (None, ()),
    ],
)
def test_columns_of_a_records_key(record_key: bytes | None, columns: tuple[str, ...]) -> None:
    assert table_key(record_key) == columns


def test_names() -> None:
    of = SourceTable("Shop-1", "public.Orders 2", "public")
    assert of.named("{database}_{schema}_{table}") == "shop_1_public_orders_2"
    assert SourceTable("{table}", "a").named("{database}_{table}") == "_table__a"


def test_wanted_by_patterns_and_left_out_by_the_whole_name() -> None:
    of = SourceTable("shop", "public.orders", "public")
    assert of.is_wanted("shop", "orders", ())
    assert of.is_wanted(".*", r"public\..*", ())
    assert not of.is_wanted("shop", "order", ())
    assert not of.is_wanted("sho", "orders", ())
    assert not of.is_wanted("shop", "orders", (r".*\.orders",))
    assert not of.is_wanted("shop", "orders", ("shop.public.orders",))
    assert of.is_wanted("shop", "orders", ("orders", r"public\.orders"))


@pytest.mark.parametrize("name", ["a", "a.b", "a$b", "a b", "订单", "a*"])
def test_a_name_that_looks_like_a_pattern_is_meant_as_it_is(name: str) -> None:
    assert is_meant(name, (exactly(name),))
    assert not is_meant("aab", (exactly(name),))


def test_a_message_that_does_not_mention_a_table_is_passed_by() -> None:
    """Only then: what mentions it is read, also with other letters for the same name."""
    read: list[bytes | None] = []

    def others(body: bytes | None) -> list[Fields]:
        read.append(body)
        return [{}]

    one = OneOfMany("orders", others)
    for body in (
        b'{"table": "order"}',
        b' {"table": "orders_2"}',
        b"{broken",
        b"broken",
        b"[]",
        b"\x18\x07other",
        None,
    ):
        assert one(body) == []
    for body in (b'{"table":"orders"', rb'{"table": "\u006frders"}', b"\x18\x07orders", b' {"table": "orders"}'):
        assert one(body) == [{}]
    assert len(read) == 4
    assert OneOfMany("öre", others)(b"{}") == [{}]
