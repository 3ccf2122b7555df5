"""Debezium's change events, as its documentation has them, with the schemas of Kafka Connect's JSON converter."""

import base64
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sinks.typed.formats.debezium import Debezium
from tests.sinks.typed.formats.columns import change, changes, encoded, outcome, row_of, wanted

READ = Debezium(wanted())
MYSQL: dict[str, Any] = {
    "version": "3.3.0.Final", "connector": "mysql", "name": "mysql-server-1", "ts_ms": 1465581029100,
    "ts_us": 1465581029100000, "snapshot": "false", "db": "shop", "sequence": None, "table": "orders",
    "server_id": 223344, "gtid": None, "file": "mysql-bin.000003", "pos": 484, "row": 0, "thread": 7, "query": None,
}  # fmt: skip
POSTGRES: dict[str, Any] = {
    "version": "3.3.0.Final", "connector": "postgresql", "name": "pg", "ts_ms": 1559033904863, "snapshot": "false",
    "db": "shop", "sequence": '["24023119","24023128"]', "schema": "public", "table": "orders", "txId": 556,
    "lsn": 24023128, "xmin": None,
}  # fmt: skip
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def event(op: str, after: dict[str, Any] | None, before: dict[str, Any] | None = None, **source: Any) -> dict[str, Any]:
    return {
        "before": before, "after": after, "source": {**MYSQL, **source}, "op": op, "ts_ms": 1465581029523,
        "transaction": None,
    }  # fmt: skip


def with_schema(payload: dict[str, Any], *columns: dict[str, Any]) -> dict[str, Any]:
    """The payload with the schema of its envelope, of which `source` has no matter here."""
    row = {"type": "struct", "fields": [{"optional": True, **one} for one in columns], "optional": True}
    fields = [
        {**row, "name": "mysql-server-1.shop.orders.Value", "field": "before"},
        {**row, "name": "mysql-server-1.shop.orders.Value", "field": "after"},
        {"type": "struct", "fields": [], "optional": False, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
    ]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "mysql-server-1.shop.orders.Envelope"}
    return {"schema": schema, "payload": payload}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decimal(scale: int, precision: int | None) -> dict[str, Any]:
    said = {"scale": str(scale), **({} if precision is None else {"connect.decimal.precision": str(precision)})}
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": said}


def named(type_: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": type_, "name": name, "version": 1, "parameters": parameters}


@pytest.mark.parametrize(
    ("schema", "given", "kind", "value"),
    [
        ({"type": "boolean"}, True, "boolean", True),
        ({"type": "int16"}, -5, "int", -5),
        ({"type": "int64"}, 1 << 62, "bigint", 1 << 62),
        ({"type": "float"}, 0.1, "double", 0.1),
        ({"type": "double"}, 2, "double", 2.0),
        ({"type": "string"}, "12", "string", "12"),
        ({"type": "bytes"}, "AP8=", "string", "AP8="),
        (decimal(2, 5), b64(b"\x01\x81\xcd"), "decimal(5,2)", Decimal("987.65")),
        (decimal(2, 5), b64(b"\xff"), "decimal(5,2)", Decimal("-0.01")),
        (decimal(2, 5), 987.65, "decimal(5,2)", Decimal("987.65")),  # decimal.format = NUMERIC
        (decimal(30, 65), b64(b"\x01"), "string", "0.000000000000000000000000000001"),
        (decimal(0, None), b64(b"\x00" + b"\xff" * 8), "decimal(20,0)", Decimal(2**64 - 1)),  # BIGINT UNSIGNED
        (decimal(2, None), b64(b"\x7b"), "decimal(38,2)", Decimal("1.23")),  # money
        (decimal(10**9, 38), "AQ==", "string", "AQ=="),  # nobody has such a type
        (named("bytes", "io.debezium.data.Bits", length="1000000000"), "AQ==", "string", "AQ=="),
        (
            {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
            {"scale": 3, "value": b64(b"\x04\xd2")}, "string", "1.234",
        ),
        (named("int32", "io.debezium.time.Date"), 20785, "date", date(2026, 11, 28)),
        (named("int32", "org.apache.kafka.connect.data.Date"), -1, "date", date(1969, 12, 31)),
        (named("int32", "io.debezium.time.Time"), 3_723_004, "string", "01:02:03.004000"),
        (named("int64", "io.debezium.time.MicroTime"), -3_020_399_000_000, "string", "-838:59:59"),
        (named("int64", "io.debezium.time.NanoTime"), 1_999, "string", "00:00:00.000001"),
        (named("int64", "io.debezium.time.Timestamp"), 1, "timestamp", datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        (
            named("int64", "io.debezium.time.MicroTimestamp"), -1, "timestamp",
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ),
        (named("int64", "io.debezium.time.NanoTimestamp"), 1_999, "timestamp",
         datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (named("string", "io.debezium.time.ZonedTimestamp"), "2026-11-28T10:00:00.5+01:00", "timestamp",
         datetime(2026, 11, 28, 9, 0, 0, 500000, tzinfo=UTC)),
        (named("int32", "io.debezium.time.Year"), 2026, "int", 2026),
        (named("bytes", "io.debezium.data.Bits", length="9"), b64(b"\x05\x01"), "string", "100000101"),
        (named("string", "io.debezium.data.Enum", allowed="a,b"), "a", "string", "a"),
        (named("string", "io.debezium.data.EnumSet", allowed="a,b"), "a,b", "string", "a,b"),
        (named("string", "io.debezium.data.Json"), '{"a": 1.10}', "json", '{"a": 1.10}'),
        (named("string", "io.debezium.data.Uuid"), "0-1", "string", "0-1"),
        ({"type": "array", "items": {"type": "string"}}, ["a"], "json", '["a"]'),
        (decimal(2, 5), None, "decimal(5,2)", None),
    ],
)  # fmt: skip
def test_a_value_is_what_its_schema_says(schema: dict[str, Any], given: Any, kind: str, value: object) -> None:
    after = {"id": 1, "v": given}
    one = change(READ, with_schema(event("c", after), {"type": "int64", "field": "id"}, {**schema, "field": "v"}))
    assert one.kinds == {"id": "bigint", "v": kind}
    values, wrong = row_of(one, dict(one.kinds))
    assert (values, wrong) == ({"id": 1, "v": value}, {})


@pytest.mark.parametrize(
    ("schema", "given", "kind"),
    [
        (decimal(2, 5), "no base64!", "decimal(5,2)"),
        (decimal(2, 5), b64(b"\x01\x86\xa0"), "decimal(5,2)"),  # 1000.00
        (named("int64", "io.debezium.time.MicroTimestamp"), (1 << 63) - 1, "timestamp"),  # PostgreSQL's infinity
        (named("int32", "io.debezium.time.Date"), 2_932_897, "date"),
        (named("int64", "io.debezium.time.MicroTime"), 0.5, "string"),
    ],
)
def test_what_no_column_takes_does_not_fit(schema: dict[str, Any], given: Any, kind: str) -> None:
    one = change(READ, with_schema(event("c", {"v": given}), {**schema, "field": "v"}))
    assert row_of(dict(one), {"v": kind})[1] == {"v": f"not_{kind}"}


ROW, OLD = {"id": 1, "name": "b"}, {"id": 1, "name": "a"}


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_row_comes_changes_and_goes(wrapped: bool) -> None:
    def of(*how: Any) -> list[tuple[bool, dict[str, Any]]]:
        columns = {"type": "int32", "field": "id"}, {"type": "string", "field": "name"}
        return changes(READ, with_schema(event(*how), *columns) if wrapped else event(*how))

    assert of("r", ROW) == of("c", ROW) == of("u", ROW) == of("u", ROW, OLD) == [(False, ROW)]
    assert of("u", ROW, {"id": 1}) == of("u", ROW, {"id": None, "name": None}) == [(False, ROW)]
    assert of("d", None, OLD) == [(True, OLD)]
    assert of("u", ROW, {"id": 7, "name": "a"}) == [(True, {"id": 7, "name": "a"}), (False, ROW)]


def test_a_declared_date_takes_days_without_a_schema() -> None:
    one = change(Debezium(wanted(kinds={"day": "date", "n": "int"})), event("c", {"day": 20785, "n": 20785}))
    assert row_of(dict(one), {"day": "date", "n": "int"})[0] == {"day": date(2026, 11, 28), "n": 20785}


UNAVAILABLE = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    "value",
    [UNAVAILABLE, b64(UNAVAILABLE.encode()), [UNAVAILABLE], [*UNAVAILABLE.encode()], {UNAVAILABLE: UNAVAILABLE}],
)
def test_a_value_that_postgresql_did_not_send_is_never_written(value: Any) -> None:
    one = change(READ, event("u", {"id": 1, "note": value, "n": 2}, **POSTGRES))
    assert ([*one], one.unfit) == (["id", "n"], {"note": ("unavailable", UNAVAILABLE)})
    full = event("u", {"id": 1, "note": value}, {"id": 1, "note": "as it was"}, **POSTGRES)
    assert changes(READ, full) == [(False, {"id": 1, "note": "as it was"})]


@pytest.mark.parametrize(
    "message",
    [
        event("c", ROW, table="orders_old"),
        event("c", ROW, db="shop_test"),
        event("t", None, table="orders_old"),
        {"op": "m", "ts_ms": 1, "source": {**POSTGRES, "table": ""}, "message": {"prefix": "foo", "content": "Zm9v"}},
        {"ts_ms": 1471277856512},  # a heartbeat
        {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None, "data_collections": None},
        {"source": MYSQL, "ts_ms": 1, "databaseName": "shop", "schemaName": None, "ddl": "ALTER …", "tableChanges": []},
    ],
)
def test_messages_that_pass_by(message: dict[str, Any]) -> None:
    assert changes(READ, message) == []
    assert changes(READ, {"schema": {"type": "struct", "fields": []}, "payload": message}) == []


def test_a_truncate_empties_the_table() -> None:
    one = change(Debezium(wanted(needs_order=True)), event("t", None))
    assert (dict(one), one.empties, one.order) == ({}, True, "0000000003.0000000000000000484.0000000000 "
                                                            "0001465581029100 223344")  # fmt: skip


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (event("x", ROW), "not_debezium"),
        (event("c", None), "no_row"),
        (event("d", None), "no_row"),  # REPLICA IDENTITY NOTHING
        ({"id": 1, "name": "flat"}, "not_debezium"),
        ({}, "not_debezium"),
        ({"schema": {"type": "struct", "fields": []}, "payload": event("c", ROW)}, "not_debezium"),
        ({**event("c", ROW), "source": "mysql"}, "not_debezium"),
        ({**event("c", ROW), "after": [1]}, "not_debezium"),
    ],
)
def test_what_is_no_event(message: dict[str, Any], reason: str) -> None:
    assert outcome(READ, encoded(message)) == reason


def test_a_table_of_postgresql_may_be_named_with_its_schema() -> None:
    for name, count in (("public.orders", 1), ("orders", 1), ("sales.orders", 0)):
        assert len(changes(Debezium(wanted(table=name)), event("c", ROW, **POSTGRES))) == count


def test_the_order_is_that_of_the_source() -> None:
    """Of the binary log, and the write-ahead log; rows of an incremental snapshot stand where its chunk was read."""
    read = Debezium(wanted(needs_order=True))
    of_mysql: list[dict[str, Any]] = [
        {"file": "mysql-bin.000003", "pos": 154, "row": 0, "snapshot": "true", "server_id": 0},
        {"file": "mysql-bin.000003", "pos": 484, "row": 0},
        {"file": "mysql-bin.000003", "pos": 484, "row": 2},
        {"file": "mysql-bin.000003", "pos": 484, "row": 10},
        {"file": "mysql-bin.000003", "pos": 1000, "row": 0},
        {"file": "mysql-bin.000010", "pos": 4, "row": 0},
    ]
    of_postgres: list[dict[str, Any]] = [
        {**POSTGRES, "lsn": 999}, {**POSTGRES, "lsn": None, "sequence": '["1","1000"]'}, POSTGRES,
    ]  # fmt: skip
    for places in (of_mysql, of_postgres):
        orders = [change(read, event("c", ROW, **one)).order or "" for one in places]
        assert orders == sorted({*orders})
    unknown = {**POSTGRES, "lsn": None, "sequence": None}
    for source in ({"connector": "oracle", "file": None}, unknown, {**unknown, "sequence": "[]"}, {"file": ""}):
        assert outcome(read, encoded(event("c", ROW, **source))) == "no_position"
