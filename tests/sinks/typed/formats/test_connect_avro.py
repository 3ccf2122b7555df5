"""Columns of bodies whose converter was told to leave out what Connect knows (``connect.meta.data = false``)."""

import json
from typing import Any

import pytest

from sinks.typed.formats.changes import Change
from sinks.typed.readers import of_debezium
from sinks.typed.registry import Registered
from tests.sinks.typed.formats.columns import outcome, row_of, texts, wanted
from tests.sinks.typed.formats.test_avro import encoded
from tests.sinks.typed.served_schemas import frame

SOURCE = {"type": "record", "name": "Source", "fields": [{"name": one, "type": "string"} for one in ("db", "table")]}


def envelope(**columns: Any) -> str:
    row = {"type": "record", "name": "Value", "fields": [{"name": name, "type": of} for name, of in columns.items()]}
    fields = {"before": ["null", row], "after": ["null", "Value"], "source": SOURCE, "op": "string"}
    listed = [{"name": name, "type": of} for name, of in fields.items()]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": "shop", "fields": listed})


@pytest.mark.parametrize(
    ("schema", "given", "kind", "text"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, b"\x01\x81\xcd", "decimal(5,2)",
         b"987.65"),
        (["null", {"type": "int", "logicalType": "date"}], 20785, "date", b'"2026-11-28"'),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1, "timestamp", b'"1970-01-01T00:00:00.001000+00:00"'),
        ({"type": "enum", "name": "Level", "symbols": ["new", "known"]}, "known", "string", b'"known"'),
        ("float", 0.1, "double", b"0.1"),
        (["int", "string"], 7, "json", b"7"),
    ],
)  # fmt: skip
def test_logical_types_say_what_they_can(schema: Any, given: Any, kind: str, text: bytes) -> None:
    of = envelope(v=schema)
    read = of_debezium(wanted(), lambda _: Registered("AVRO", of))
    event = {"before": None, "after": {"v": given}, "source": {"db": "shop", "table": "orders"}, "op": "c"}
    (change,) = read(frame(1, encoded(of, event)))
    assert isinstance(change, Change)
    assert (change.kinds, texts(change)) == ({"v": kind}, {"v": text})
    assert row_of(change, {"v": kind})[1] == {}


def test_an_envelope_without_a_row() -> None:
    fields = [{"name": "after", "type": {"type": "map", "values": "int"}}, {"name": "source", "type": SOURCE}]
    of = json.dumps({"type": "record", "name": "E", "fields": [*fields, {"name": "op", "type": "string"}]})
    read = of_debezium(wanted(), lambda _: Registered("AVRO", of))
    event = {"after": {"id": 1}, "source": {"db": "shop", "table": "orders"}, "op": "c"}
    assert outcome(read, frame(1, encoded(of, event))) == "not_debezium"
