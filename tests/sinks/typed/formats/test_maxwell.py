"""Maxwell's messages, as its documentation has them, and as `RowMap` writes them with more options."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from sinks.typed.formats.maxwell import Maxwell
from tests.sinks.typed.formats.columns import change, changes, encoded, outcome, row_of, wanted

READ = Maxwell(wanted())
DATA = {"id": 1, "m": 4.2341, "c": "2016-10-21 05:33:37.523000", "comment": "I am a creature of light."}


def event(type_: str = "insert", **more: Any) -> dict[str, Any]:
    said = {
        "database": "shop", "table": "orders", "type": type_, "ts": 1477053217, "xid": 23396, "commit": True,
        "position": "master.000006:800911", "server_id": 23042, "thread_id": 108, "primary_key": [1],
        "primary_key_columns": ["id"], "data": DATA,
    }  # fmt: skip
    return {**said, **more}


def test_a_row_comes_changes_and_goes() -> None:
    assert changes(READ, event()) == [(False, DATA)]
    assert changes(READ, event("bootstrap-insert", position=None)) == [(False, DATA)]
    assert changes(READ, event("update", old={"m": 5.444, "c": None})) == [(False, DATA)]
    assert changes(READ, event("delete")) == [(True, DATA)]
    assert changes(READ, event("update", old={"id": 7, "m": 1})) == [
        (True, {**DATA, "id": 7, "m": 1}),
        (False, DATA),
    ]


def test_a_declared_column_says_what_a_value_is() -> None:
    kinds = {"c": "timestamp", "paid": "boolean", "big": "decimal(20,0)", "zero": "timestamp", "n": "bigint"}
    data = {**DATA, "paid": 1, "big": 2**64 - 1, "zero": "0000-00-00 00:00:00", "n": "1", "tags": ["a", "b"]}
    values, wrong = row_of(change(Maxwell(wanted(kinds=kinds)), event(data=data)), {**kinds, "tags": "json"})
    at = datetime(2016, 10, 21, 5, 33, 37, 523000, tzinfo=UTC)
    assert values == {"c": at, "paid": True, "big": Decimal(2**64 - 1), "zero": None, "n": None, "tags": '["a","b"]'}
    assert wrong == {"zero": "not_timestamp", "n": "not_bigint"}


@pytest.mark.parametrize(
    "message",
    [
        event("bootstrap-start", data={}),
        event("bootstrap-complete", data={}),
        event("table-alter", data=None, sql="ALTER TABLE orders ADD x INT"),
        event("table-create", data=None, **{"def": {"columns": []}}),
        {"type": "database-create", "database": "shop", "ts": 1, "sql": "create database shop"},
        event(table="orders_old"),
        event(database="shop_test"),
    ],
)
def test_messages_that_pass_by(message: dict[str, Any]) -> None:
    assert changes(READ, message) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (event("upsert"), "not_maxwell"),
        (event(data=None), "not_maxwell"),
        (event(data=[DATA]), "not_maxwell"),
        ({"id": 1}, "not_maxwell"),
    ],
)
def test_what_is_no_message_of_maxwell(message: dict[str, Any], reason: str) -> None:
    assert outcome(READ, encoded(message)) == reason


def test_the_order_is_that_of_the_binary_log() -> None:
    """By file and position, in a transaction by the row's number; its last row has none."""
    read = Maxwell(wanted(needs_order=True))
    places: list[dict[str, Any]] = [
        {"position": "master.000009:999999"},
        {"position": "master.000010:4", "commit": None, "xoffset": 0},
        {"position": "master.000010:4", "commit": None, "xoffset": 9},
        {"position": "master.000010:4", "commit": None, "xoffset": 10},
        {"position": "master.000010:4", "commit": True},
        {"position": "master.000010:1000", "server_id": None},
        {"position": "master.999999:4"},
        {"position": "master.1000000:4"},
    ]
    orders = [change(read, event(**one)).order or "" for one in places]
    assert orders == sorted({*orders})
    assert change(read, event("bootstrap-insert", position=None)).order is None
    for position in (None, "", "800911", "master.000006:"):
        assert outcome(read, encoded(event(position=position))) == "no_position"
