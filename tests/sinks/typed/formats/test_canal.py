"""Canal's flat messages, as its `MQMessageUtils` makes them of the texts of its `LogEventConvert`."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sinks.typed.formats.canal import Canal, transactions
from sinks.typed.formats.json_fields import NoObject
from tests.sinks.typed.formats.columns import change, changes, encoded, outcome, row_of, wanted

READ = Canal(wanted())


def event(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An INSERT of these rows into `shop.orders`."""
    said = {
        "data": [*rows], "database": "shop", "es": 1589373560000, "gtid": "", "id": 9, "isDdl": False,
        "mysqlType": {"id": "int(11)", "name": "varchar(255)"}, "old": None, "pkNames": ["id"], "sql": "",
        "sqlType": {"id": 4, "name": 12}, "table": "orders", "ts": 1589373560798, "type": "INSERT",
    }  # fmt: skip
    return {**said, **more}


@pytest.mark.parametrize(
    ("type_", "text", "kind", "value"),
    [
        ("int(11)", "-5", "int", -5),
        ("tinyint(1)", "1", "int", 1),
        ("int(10) unsigned", "4294967295", "bigint", 4294967295),
        ("INTEGER", "7", "int", 7),
        ("mediumint unsigned zerofill", "16777215", "int", 16777215),
        ("bigint(20)", "-9223372036854775808", "bigint", -(1 << 63)),
        ("bigint(20) unsigned", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
        ("decimal(12,2)", "-0.10", "decimal(12,2)", Decimal("-0.10")),
        ("decimal(10, 3) unsigned", "5.180", "decimal(10,3)", Decimal("5.18")),
        ("decimal(65,30)", "0.100000000000000000000000000000", "string", "0.100000000000000000000000000000"),
        ("decimal(5,9)", "1.5", "string", "1.5"),  # nobody has such a type
        ("bit(999999999)", "1", "boolean", True),
        ("double", "1.0E10", "double", 1e10),
        ("float(7,4)", "0.1", "double", 0.1),
        ("double precision", "0.5", "double", 0.5),
        ("date", "2026-11-28", "date", date(2026, 11, 28)),
        ("datetime(3)", "2026-11-28 23:59:59.123", "timestamp", datetime(2026, 11, 28, 23, 59, 59, 123000, tzinfo=UTC)),
        ("timestamp", "2026-11-28 10:00:00", "timestamp", datetime(2026, 11, 28, 10, tzinfo=UTC)),
        ("time(6)", "-838:59:59.000000", "string", "-838:59:59.000000"),
        ("year(4)", "2026", "int", 2026),
        ("bit(1)", "1", "boolean", True),
        ("bit(8)", "5", "string", "00000101"),
        ("bit(64)", "18446744073709551615", "string", "1" * 64),
        ("enum('new','it''s (1)','x,y')", "2", "string", "it's (1)"),
        ("enum('new')", "0", "string", ""),
        ("enum('new')", "new", "string", "new"),  # not from Canal
        ("set('a','b','c')", "5", "string", "a,c"),
        ("set('a','b','c')", "0", "string", ""),
        ("json", '{"a": [1, 1.10]}', "json", '{"a": [1, 1.10]}'),
        ("json", "[" * 101 + "]" * 101, "json", '"' + "[" * 101 + "]" * 101 + '"'),
        ("varbinary(16)", "\x00\xff~", "string", "AP9+"),
        ("binary(4)", "\x00\xff", "string", "AP8AAA=="),
        ("longblob", "", "string", ""),
        ("text", "数\U0001f600", "string", "数\U0001f600"),
        ("varchar(20) character set utf8mb4", "12", "string", "12"),
        ("inet6", "::1", "string", "::1"),  # MariaDB
        ("int(11)", None, "int", None),
    ],
)
def test_a_text_is_what_mysql_s_type_says(type_: str, text: str | None, kind: str, value: object) -> None:
    one = change(READ, event({"id": "1", "v": text}, mysqlType={"id": "int(11)", "v": type_}))
    assert one.kinds["v"] == kind
    values, wrong = row_of(one, {"v": kind})
    assert (values["v"], wrong) == (value, {})


@pytest.mark.parametrize(
    ("type_", "text", "kind"),
    [
        ("datetime", "0000-00-00 00:00:00", "timestamp"),  # MySQL's zero date is no time
        ("date", "0000-00-00", "date"),
        ("timestamp", "0000-00-00 00:00:00", "timestamp"),
        ("int", "many", "int"),
        ("decimal(4,2)", "100.00", "decimal(4,2)"),
    ],
)
def test_what_no_column_takes_does_not_fit(type_: str, text: str, kind: str) -> None:
    message = event({"id": "1", "v": text}, mysqlType={"v": type_})
    for zone in ("UTC", "Asia/Shanghai"):
        assert row_of(change(Canal(wanted(time_zone=zone)), message), {"v": kind})[1] == {"v": f"not_{kind}"}


def test_a_timestamp_is_by_the_clock_of_canal_and_a_datetime_has_no_zone() -> None:
    read = Canal(wanted(time_zone="America/New_York", kinds={"declared": "timestamp"}))
    row = {"id": "1", "t": "2026-11-28 10:00:00.5", "d": "2026-11-28 10:00:00", "declared": "2026-07-01 10:00:00"}
    ((_, values),) = changes(read, event(row, mysqlType={"t": "timestamp(1)", "d": "datetime"}))
    assert values["t"] == datetime(2026, 11, 28, 15, 0, 0, 500000, tzinfo=UTC)
    assert values["d"] == datetime(2026, 11, 28, 10, tzinfo=UTC)
    assert values["declared"] == "2026-07-01 10:00:00-04:00"


def test_rows_come_in_the_order_of_their_event() -> None:
    rows: list[dict[str, Any]] = [{"id": "1", "name": "a"}, {"id": "2", "name": None}, {"id": "1", "name": "b"}]
    assert changes(READ, event(*rows)) == [
        (False, {"id": 1, "name": "a"}),
        (False, {"id": 2, "name": None}),
        (False, {"id": 1, "name": "b"}),
    ]
    gone = event(rows[0], type="DELETE")
    assert changes(READ, gone) == [(True, {"id": 1, "name": "a"})]


def test_a_change_of_the_key_is_a_row_gone_and_another() -> None:
    rows = [{"id": "3", "name": "a"}, {"id": "2", "name": "c"}]
    moved = event(*rows, old=[{"id": "2"}, {"name": "b"}], type="UPDATE")
    assert changes(READ, moved) == [
        (True, {"id": 2, "name": "a"}),
        (False, {"id": 3, "name": "a"}),
        (False, {"id": 2, "name": "c"}),
    ]


def test_what_others_write_in_this_form() -> None:
    """Without types, or with values of JSON's own."""
    read = Canal(wanted(kinds={"id": "int", "amount": "decimal(5,2)", "paid": "boolean"}))
    plain = {"id": 1, "amount": 1.5, "items": [1]}
    assert changes(read, event(plain, mysqlType=None, sqlType=None, pkNames=None)) == [
        (False, {"id": 1, "amount": 1.5, "items": "[1]"})
    ]
    one = change(read, event({"id": "1", "amount": "1.50", "paid": "0", "note": "7"}, mysqlType=None))
    values, wrong = row_of(one, {"id": "int", "amount": "decimal(5,2)", "paid": "boolean", "note": "string"})
    assert (values, wrong) == ({"id": 1, "amount": Decimal("1.50"), "paid": False, "note": "7"}, {})


@pytest.mark.parametrize(
    "message",
    [
        event({"id": "1"}, table="orders_old"),
        event({"id": "1"}, database="shop_test"),
        event(isDdl=True, data=None, type="ALTER", sql="ALTER TABLE orders ADD COLUMN x INT", mysqlType=None),
        event(isDdl=True, data=None, type="ERASE", sql="DROP TABLE orders"),
        event(isDdl=False, data=None, type="QUERY", sql="BEGIN"),
        event(isDdl=True, data=None, type="TRUNCATE", table="orders_old", sql="TRUNCATE orders_old"),
        event(isDdl=True, data=None, type="QUERY", table="", sql="CREATE DATABASE shop"),
    ],
)
def test_messages_that_pass_by(message: dict[str, Any]) -> None:
    assert changes(READ, message) == []


def test_a_truncate_empties_the_table() -> None:
    one = change(READ, event(isDdl=True, data=None, type="TRUNCATE", sql="TRUNCATE orders", mysqlType=None))
    assert (dict(one), one.empties, one.deletes) == ({}, True, False)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (event(data=None, sql="INSERT INTO orders VALUES (1)"), "no_rows"),  # binlog_format = STATEMENT
        (event({"id": "1"}, type="UPSERT"), "not_canal"),
        (event({"id": "1"}, old=[None, None], type="UPDATE"), "not_canal"),
        (event({"id": "1"}, data={"id": "1"}), "not_canal"),
        (event({"id": "1"}, mysqlType=["int"]), "not_canal"),
        ({"id": 1, "name": "flat"}, "not_canal"),
        (b"[]", "not_canal"),
        (b"\xff", "not_utf8"),
        (encoded(event({"id": "1"}))[:-1], "not_json"),
        (encoded(event({"id": 0})).replace(b"0", b"[" * 100 + b"]" * 100, 1), "too_deep"),
        (None, "no_body"),
    ],
)
def test_what_is_no_flat_message(message: Any, reason: str) -> None:
    body = message if message is None or isinstance(message, bytes) else encoded(message)
    assert outcome(READ, body) == reason


def test_names_may_be_patterns() -> None:
    read = Canal(wanted(database="shop_[0-9]+", table="(orders|order_items)"))
    names = [("shop_1", "orders"), ("shop_12", "order_items"), ("shop", "orders"), ("shop_1", "orders2")]
    found = [len(changes(read, event({"id": "1"}, database=one, table=other))) for one, other in names]
    assert found == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("gtids", "count"),
    [
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:23", 1),
        ("3E11FA47-71CA-11E1-9E33-C80AA9429562:1-3:11:47-49", 7),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,2174b383-5441-11e8-b90a-c80aa9429562:1-77", 82),
        ("0-1-270", 270),
        ("0-1-270, 1-2-5", 275),
        ("", None),
        ("nothing known", None),
    ],
)
def test_how_many_transactions_a_set_has(gtids: str, count: int | None) -> None:
    assert transactions(gtids) == count


def test_the_order_is_that_of_transactions_where_a_table_wants_it() -> None:
    read = Canal(wanted(needs_order=True))
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    found = [change(read, event({"id": "1"}, gtid=f"{uuid}:1-{last}")).order or "" for last in (9, 10, 12)]
    assert found == sorted({*found})
    with pytest.raises(NoObject) as caught:
        read(encoded(event({"id": "1"})))
    assert caught.value.reason == "no_position"
