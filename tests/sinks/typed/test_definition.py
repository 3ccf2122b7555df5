"""Which topics a typed table is made from, which messages delete a row, and what is left of them."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from sinks.typed.columns import DELETED, Column
from sinks.typed.definition import Definition, Reading
from sinks.typed.formats.json_fields import NoObject, fields_of
from sinks.typed.patterns import check_topic, is_meant, is_pattern
from sinks.typed.state import TypedState
from sinks.typed.step.parsing import MESSAGES, OfStep, Parsing, with_epochs
from sinks.typed.step.report import FoundFields, Told, free_names
from tests.sinks.typed.formats.columns import encoded
from tests.sinks.typed.formats.test_debezium import event


@pytest.mark.parametrize(
    ("texts", "meant", "others"),
    [
        (["orders"], ["orders"], ["orders-eu", "orderss"]),
        (["orders.eu"], ["orders.eu"], ["orders-eu", "ordersxeu"]),  # a dot alone makes no pattern
        (["%RETRY%g|h"], ["%RETRY%g|h"], ["h", "%RETRY%g"]),
        (["orders-.*"], ["orders-", "orders-eu"], ["orders", "old-orders-eu"]),
        (["(orders|refunds)", "notes"], ["orders", "refunds", "notes"], ["orders|refunds", "order"]),
        (["(?!test)[a-z]+"], ["orders"], ["tests", "orders1"]),
        (["kafka/a.b/o.*"], ["kafka/a.b/orders", "kafka/a.b/o"], ["kafka/axb/orders", "orders"]),
    ],
)
def test_which_topics_are_meant(texts: list[str], meant: list[str], others: list[str]) -> None:
    for one in texts:
        check_topic(one)
    assert [topic for topic in (*meant, *others) if is_meant(topic, texts)] == meant


@pytest.mark.parametrize(
    "text", ["(", "[", "a{2}{3}*", "(?P<a>x)", "[a&&b]*", "[a[b]]*", r"x*\Z", r"\Qa\E", "kafka/.*/x", "kafka/a/("]
)
def test_what_python_and_spark_do_not_both_read_is_refused(text: str) -> None:
    assert is_pattern(text)
    with pytest.raises(ValueError, match=r"regular expression|only of the topic"):
        check_topic(text)


def test_a_state_says_of_which_topics_a_message_has_come() -> None:
    wanted = Definition(name="orders", topics=("orders", "decl"))
    state = TypedState("made")
    assert wanted.unmatched(state.sources) == ("orders", "decl")
    state = TypedState.from_json(state.moved({}, sources={"orders"}).as_json())
    assert wanted.unmatched(state.sources) == ("decl",)
    assert wanted.unmatched(state.moved({}, sources={"decl"}).moved({}).sources) == ()
    by_pattern = Definition(name="orders", topics=("orders-.*", "decl"))
    assert by_pattern.unmatched({"orders", "old-orders-eu", "decl"}) == ("orders-.*",)
    assert by_pattern.unmatched({"orders-eu", "decl"}) == ()


def test_a_state_of_an_older_version_says_nothing_of_topics() -> None:
    values = json.loads(TypedState("made").as_json())
    del values["sources"]
    state = TypedState.from_json(json.dumps(values)).moved({}, sources={"orders"})
    assert Definition(name="orders", topics=("orders", "decl")).unmatched(state.sources) == ()


DEBEZIUM = Definition(name="orders", key=("id",), deleted={"op": ("d", "truncate"), "__deleted": ("true",)})
BY_ID = Definition(name="orders", key=("id",), tombstones=True)


def as_value(raw: msgspec.Raw) -> Any:
    return json.loads(bytes(raw))


@pytest.mark.parametrize(
    ("body", "deletes"),
    [
        ({"id": 1, "op": "d", "before": {"name": "x"}}, True),
        ({"id": 1, "op": "truncate"}, True),
        ({"id": 1, "__deleted": "true"}, True),
        ({"id": 1, "__deleted": True}, True),  # as text or as what it is
        ({"id": 1, "__deleted": "false"}, False),
        ({"id": 1, "op": "D"}, False),
        ({"id": 1, "op": ["d"]}, False),
        ({"id": 1, "op": None}, False),
        ({"id": 1}, False),
    ],
)
def test_a_field_says_so(body: dict[str, Any], deletes: bool) -> None:
    fields = fields_of(json.dumps(body).encode())
    assert DEBEZIUM.deletes([fields]) == [deletes]
    left = {name: as_value(raw) for name, raw in fields.items()}
    assert left == ({"id": 1} if deletes else body)


@pytest.mark.parametrize(
    ("record_key", "kind", "value"),
    [
        (b"42", "bigint", b"42"),
        (b"42", "string", b'"42"'),  # as a producer sends it that writes texts
        (b'"42"', "string", b'"42"'),  # and one that writes JSON
        (b"order-7", "string", b'"order-7"'),
        (b"order-7", None, b'"order-7"'),  # the table has not seen the field yet
        (b"true", "string", b'"true"'),
        (b'{"id": 7, "shard": 1}', "bigint", b"7"),
        # digits are kept
        (b"123456789012345678901234567890", "decimal(38,0)", b"123456789012345678901234567890"),
        (b"0.1000000000000000055511151231257827", "decimal(38,37)", b"0.1000000000000000055511151231257827"),
        (b" 1.10 ", "json", b"1.10"),
        (b"1e999", "json", b"1e999"),
        # just not too deep
        (b"[" * 100 + b"]" * 100, "string", b'"' + b"[" * 100 + b"]" * 100 + b'"'),
        (b"[" * 100, "string", b'"' + b"[" * 100 + b'"'),
        (b'"' + b"[" * 5_000 + b'"', "string", b'"' + b"[" * 5_000 + b'"'),
    ],
)
def test_a_tombstone_takes_its_key_from_the_record_key(record_key: bytes, kind: str | None, value: bytes) -> None:
    found = BY_ID.tombstone(record_key, {} if kind is None else {"id": kind})
    assert found is not None
    assert {name: bytes(raw) for name, raw in found.items()} == {"id": value}


def test_a_key_of_two_fields_is_an_object() -> None:
    deletes = Definition(name="orders", key=("shard", "id"), tombstones=True)
    found = deletes.tombstone(b'{"id": 7, "other": 0, "shard": 1}', {})
    assert found is not None
    assert {name: as_value(raw) for name, raw in found.items()} == {"shard": 1, "id": 7}
    assert deletes.tombstone(b"7", {}) is None
    assert deletes.tombstone(b'{"id": 7}', {}) is None


@pytest.mark.parametrize(
    "record_key",
    [b"[" * 5_000, b"[" * 101 + b"]" * 101, b'{"id":' * 5_000, b'{"id": 7, "x": ' + b"[" * 100 + b"]" * 100 + b"}"],
)
def test_a_key_that_is_nested_too_deep_says_so(record_key: bytes) -> None:
    """As a body does; and no parser meets it."""
    with pytest.raises(NoObject) as raised:
        BY_ID.tombstone(record_key, {"id": "string"})
    assert raised.value.reason == "too_deep"


def test_a_message_that_deletes_is_a_row_of_its_key_alone() -> None:
    bodies = [
        b'{"id": "a", "n": 1, "_deleted": "mine"}',
        b'{"id": "b", "n": "no number", "op": "d", "new": 1}',
        None,
        None,
        b"broken",
        None,
    ]
    keys = [b"a", b"b", b"c", b"\xff", b"e", b"[" * 5_000]
    columns = (DELETED, Column("id", "id", "string"), Column("n", "n", "bigint"))
    wanted = Definition(name="orders", key=("id",), deleted={"op": ("d",)}, tombstones=True)
    parsing = Parsing(wanted, "rows", "unfit", OfStep(columns))
    told = Told(FoundFields(free_names((), {})))
    made, unfit = parsing.rows(with_epochs(messages(bodies, keys), {"k/0": 0}), told)
    assert [
        tuple(row[name] for name in ("offset", "_deleted", "id", "n", "_rest")) for row in made.to_pylist()
    ] == [
        (0, False, "a", 1, '{"_deleted":"mine"}'),
        (1, True, "b", None, None),
        (2, True, "c", None, None),
    ]  # fmt: skip
    assert [(row["offset"], row["reason"]) for row in unfit.to_pylist()] == [
        (3, "no_body"),
        (4, "not_json"),
        (5, "too_deep"),
    ]
    assert set(told.report.seen) == {"_deleted"}  # of a, whose column will be called otherwise


def test_behind_a_deletion_debezium_sends_kafka_a_record_without_a_value() -> None:
    """It says nothing new. In RocketMQ a message without a body is one that cannot be read."""
    reading = Reading(format="debezium", database="shop", table="orders", row_key=("id",))
    bodies: list[bytes | None] = [encoded(event("d", None, {"id": 1})), None]
    of_kafka = Definition(name="orders", key=("id",), reading=reading, kafka_topics=("k",))
    for wanted, reasons in ((of_kafka, []), (replace(of_kafka, kafka_topics=(), topics=("k",)), ["no_body"])):
        parsing = Parsing(wanted, "rows", "unfit", OfStep((DELETED, Column("id", "id", "bigint"))))
        told = Told(FoundFields(free_names((), {})))
        made, unfit = parsing.rows(with_epochs(messages(bodies, [b"1"] * 2), {"k/0": 0}), told)
        assert [(row["offset"], row["_deleted"], row["id"]) for row in made.to_pylist()] == [(0, True, 1)]
        assert unfit["reason"].to_pylist() == reasons


def test_what_an_event_does_not_tell_is_null_and_told() -> None:
    reading = Reading(format="debezium", database="shop", table="orders", row_key=("id",))
    wanted = Definition(name="orders", key=("id",), reading=reading, topics=("k",), renamed={"note": "remark"})
    columns = (DELETED, Column("id", "id", "bigint"), Column("remark", "note", "string"))
    row = {"id": 1, "note": "__debezium_unavailable_value", "card": "__debezium_unavailable_value"}
    for dropped, told_of in (((), ["remark", "card"]), (("card",), ["remark"])):
        parsing = Parsing(replace(wanted, dropped=dropped), "rows", "unfit", OfStep(columns))
        of = messages([encoded(event("u", row))], [b""])
        made, unfit = parsing.rows(with_epochs(of, {"k/0": 0}), Told(FoundFields(free_names((), {}))))
        assert [(row["_deleted"], row["remark"], row["_rest"]) for row in made.to_pylist()] == [(False, None, None)]
        assert [(row["column"], row["reason"]) for row in unfit.to_pylist()] == [
            (one, "unavailable") for one in told_of
        ]


def messages(bodies: list[bytes | None], keys: list[bytes]) -> pa.RecordBatch:
    rows = [
        {"log_id": "k/0", "offset": offset, "batch_index": None, "stored_at": 0, "record_key": key, "body": body}
        for offset, (body, key) in enumerate(zip(bodies, keys, strict=True))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGES)
