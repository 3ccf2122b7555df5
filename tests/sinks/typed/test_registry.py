"""A schema registry over HTTP: what is asked, how often, and what of its answers is whose fault."""

import base64
import json
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from sinks.typed import registry as module
from sinks.typed.definition import Definition, Reading
from sinks.typed.formats.changes import Change
from sinks.typed.formats.json_fields import AnyReader, NoObject
from sinks.typed.readers import reader
from sources.access.security import Secret
from sources.errors import ConfigurationError, RegistryUnreachable
from tests.sinks.typed.formats.columns import found_kinds, outcome, texts
from tests.sinks.typed.formats.test_avro import encoded, record
from tests.sinks.typed.formats.test_protobuf import FILE, in_base64
from tests.sinks.typed.served_schemas import Served, frame
from tests.sinks.typed.test_parsing import Task


@pytest.fixture
def served() -> Iterator[Served]:
    with closing(Served()) as made:
        yield made


OLD, NEW = record("int"), record("long", {"type": "long", "logicalType": "timestamp-millis"})


def test_each_message_is_read_by_the_schema_that_it_was_written_with(served: Served) -> None:
    served.answers |= {"/schemas/ids/1": (200, {"schema": OLD}), "/schemas/ids/258": (200, {"schema": NEW})}
    read = served.reader()
    for _ in range(3):
        old, new = read(frame(1, b"\x02")), read(frame(258, encoded(NEW, {"f0": 1 << 40, "f1": 0})))
        assert texts(old) == {"f0": b"1"}
        assert texts(new) == {"f0": b"1099511627776", "f1": b'"1970-01-01T00:00:00+00:00"'}
        assert (found_kinds(old), found_kinds(new)) == ({"f0": "int"}, {"f0": "bigint", "f1": "timestamp"})
    assert served.asked == [("/schemas/ids/1", None), ("/schemas/ids/258", None)]


def test_json_in_a_frame_is_json(served: Served) -> None:
    served.answers["/schemas/ids/1"] = 200, {"schema": "{}", "schemaType": "JSON"}
    served.answers["/schemas/ids/2"] = 200, {"schema": OLD}
    read = served.reader("json")
    assert read(frame(1, b'{"id": 7}')) == {"id": msgspec.Raw(b"7")}
    for body, reason in (
        (frame(2, b"{}"), "unusable_schema"),
        (b'{"id": 7}', "no_schema_id"),
        (frame(1, b"{"), "not_json"),
    ):
        with pytest.raises(NoObject) as caught:
            read(body)
        assert caught.value.reason == reason


def test_debezium_by_a_json_schema(served: Served) -> None:
    """As Confluent's JsonSchemaData writes it (made by hand: its jars are at no public registry)."""
    day = {"type": "integer", "title": "io.debezium.time.Date", "connect.type": "int32", "connect.version": 1}
    price = {
        "type": "string", "title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes",
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "5"},
    }  # fmt: skip
    columns = {
        "id": {"type": "integer", "connect.index": 0, "connect.type": "int64"},
        "day": {"connect.index": 1, "oneOf": [{"type": "null"}, day]},
        "price": price,
        "paid": {"type": "boolean"},
    }
    row = {"oneOf": [{"type": "null"}, {"type": "object", "title": "shop.orders.Value", "properties": columns}]}
    schema = {"type": "object", "properties": {"before": row, "after": row, "op": {"type": "string"}}}
    served.answers["/schemas/ids/1"] = 200, {"schema": json.dumps(schema), "schemaType": "JSON"}
    served.answers["/schemas/ids/2"] = 200, {"schema": '{"type": "object"}', "schemaType": "JSON"}
    served.answers["/schemas/ids/3"] = 200, {"schema": "", "schemaType": "PROTOBUF"}
    read = cast("AnyReader", served.reader("debezium", database="shop", table="orders", row_key=("id",)))
    after = {"id": 7, "day": 20785, "price": "AYHN", "paid": True}
    event = json.dumps({"op": "c", "source": {"db": "shop", "table": "orders"}, "before": None, "after": after})
    (change,) = read(frame(1, event.encode()))
    assert isinstance(change, Change)
    assert change.kinds == {"id": "bigint", "day": "date", "price": "decimal(5,2)", "paid": "boolean"}
    assert texts(change) == {"id": b"7", "day": b'"2026-11-28"', "price": b"987.65", "paid": b"true"}
    (plain,) = read(event.encode())  # from before the converter was changed
    assert texts(cast("Change", plain))["day"] == b"20785"
    assert read(frame(2, b'{"ts_ms": 1}')) == []  # a heartbeat
    assert [outcome(read, body) for body in (frame(2, event.encode()), frame(3, b""), frame(4, b""), b"\0")] == [
        "not_debezium", "unusable_schema", "unknown_schema", "no_schema_id"
    ]  # fmt: skip
    without = reader(Reading(format="debezium", database="shop", table="orders"))
    assert outcome(without, frame(1, event.encode())) == "not_debezium"


def test_a_tombstones_key_is_read_by_the_registry(served: Served, tmp_path: Path) -> None:
    key = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "f0", "type": "long"}]})
    served.answers |= {
        "/schemas/ids/1": (200, {"schema": NEW}),
        "/schemas/ids/2": (200, {"schema": key}),
        "/schemas/ids/3": (200, {"schema": '"long"'}),
    }
    reading = Reading(format="avro", registry=served.url)
    unwrapped = Definition(
        name="orders", kafka_topics=("kafka/a/orders",), reading=reading, key=("f0",), tombstones=True,
        schema={"f0": "bigint", "f1": "timestamp"},
    )  # fmt: skip
    row = frame(1, encoded(NEW, {"f0": 7, "f1": 0}))
    gone = [{"record_key": one} for one in (frame(2, b"\x0e"), b'{"f0": 8}', frame(3, b"\x0e"), frame(9, b"\x0e"))]
    made = Task(tmp_path, unwrapped, row, *gone)
    assert [(one["f0"], one["_deleted"], one["offset"]) for one in made.rows] == [
        (7, False, 0),
        (7, True, 1),
        (8, True, 2),
    ]
    assert [(one["offset"], one["reason"]) for one in made.unfit] == [(3, "unusable_schema"), (4, "unknown_schema")]


def test_what_is_the_messages_fault(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.answers |= {
        "/schemas/ids/1": (200, {"schema": OLD}),
        "/schemas/ids/2": (200, {"schema": OLD, "schemaType": "JSON"}),
        "/schemas/ids/3": (200, {"schema": '"string"'}),
    }
    read = served.reader()
    for body, reason in [
        (None, "no_body"),
        (b"", "no_schema_id"),
        (b"\0\0\0\0", "no_schema_id"),
        (b"\x01" + frame(1, b"\x02")[1:], "no_schema_id"),
        (b"{}", "no_schema_id"),
        (frame(9, b"\x02"), "unknown_schema"),
        (frame((1 << 32) - 1, b"\x02"), "unknown_schema"),
        (frame(2, b"\x02"), "unusable_schema"),
        (frame(3, b"\x02"), "unusable_schema"),
        (frame(1, b""), "not_avro"),
        (frame(1, b"\x02\x02"), "trailing_bytes"),
        (frame(9, b"\x02"), "unknown_schema"),
        (frame(3, b"\x02"), "unusable_schema"),
    ]:
        assert outcome(read, body) == reason
    paths = [path for path, _ in served.asked]
    assert len(paths) == len(set(paths)) == 5
    # what was not there is asked for again after a while
    served.answers["/schemas/ids/9"] = 200, {"schema": OLD}
    assert outcome(read, frame(9, b"\x02")) == "unknown_schema"
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    assert outcome(read, frame(9, b"\x02")) is None


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_registry_that_is_away_is_asked_again(served: Served, status: int) -> None:
    served.answers["/schemas/ids/1"] = status, {"error_code": 50001, "message": "leader not available"}
    read = served.reader()
    for _ in range(2):
        with pytest.raises(RegistryUnreachable, match="leader not available"):
            read(frame(1, b"\x02"))
    served.answers["/schemas/ids/1"] = 200, {"schema": OLD}
    assert texts(read(frame(1, b"\x02"))) == {"f0": b"1"}


def test_a_registry_that_is_not_there(served: Served) -> None:
    served.close()
    with pytest.raises(RegistryUnreachable, match="refused") as caught:
        served.reader()(frame(1, b"\x02"))
    assert caught.value.is_transient


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (404, b"<html>not here</html>"),
        (404, {"message": "no such path"}),
        (401, {"error_code": 401, "message": "who are you"}),
        (403, {}),
        (301, {}),
        (200, b"<html>welcome</html>"),
        (200, [1]),
        (200, {"schema": 7}),
        (200, b"[" * 100_000),
        (200, b'{"schema":' + b'{"a":' * 100_000),
        (200, {"schema": OLD, "references": 7}),
        (200, {"schema": OLD, "references": [7]}),
        (200, {"schema": OLD, "references": [{}]}),
        (200, {"schema": OLD, "references": [{"name": [], "subject": "a", "version": 1}]}),
        (200, {"schema": OLD, "references": [{"name": "a", "subject": 7}]}),
        (200, {"schema": OLD, "schemaType": []}),
    ],
    ids=range(16),
)
def test_what_is_the_configurations_fault(served: Served, status: int, answer: object) -> None:
    served.answers["/schemas/ids/1"] = status, answer
    with pytest.raises(ConfigurationError, match="gives no schema"):
        served.reader()(frame(1, b"\x02"))


def test_a_path_and_who_asks(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.answers["/apis/ccompat/v7/schemas/ids/1"] = 200, {"schema": OLD}
    monkeypatch.setenv("REGISTRY_USER", "who")
    monkeypatch.setenv("REGISTRY_KEY", "says:so")
    keys: dict[str, Any] = {"username": Secret("env:REGISTRY_USER"), "password": Secret("env:REGISTRY_KEY")}
    served.reader(path="/apis/ccompat/v7/", **keys)(frame(1, b"\x02"))
    # RFC 7617: what is before the first colon is the name
    assert served.asked == [("/apis/ccompat/v7/schemas/ids/1", f"Basic {base64.b64encode(b'who:says:so').decode()}")]
    monkeypatch.delenv("REGISTRY_KEY")
    with pytest.raises(ConfigurationError, match="env:REGISTRY_KEY"):
        served.reader(path="/apis/ccompat/v7/", **keys)(frame(1, b"\x02"))


def test_schemas_that_refer_to_others(served: Served) -> None:
    enum = json.dumps({"type": "enum", "name": "geo.Place", "symbols": ["KIEL", "BREMEN"]})
    address = json.dumps({"type": "record", "name": "Address", "fields": [{"name": "at", "type": "geo.Place"}]})
    place = {"name": "geo.Place", "subject": "geo/Place", "version": 3}
    refers = [{"name": "Address", "subject": "address", "version": 1}, place]
    served.answers |= {
        "/schemas/ids/1": (200, {"schema": record("Address", "geo.Place"), "references": refers}),
        "/subjects/address/versions/1": (200, {"schema": address, "references": [place]}),
        "/subjects/geo%2FPlace/versions/3": (200, {"schema": enum}),
    }
    assert texts(served.reader()(frame(1, b"\x02\x00"))) == {"f0": b'{"at":"BREMEN"}', "f1": b'"KIEL"'}
    assert len(served.asked) == 3
    del served.answers["/subjects/geo%2FPlace/versions/3"]
    with pytest.raises(ConfigurationError, match="refers to"):
        served.reader()(frame(1, b"\x02\x00"))


def test_schemas_that_refer_to_one_another(served: Served) -> None:
    """Each is asked for once, so that it ends; then there is one that uses a name of which nothing is known yet."""
    one, other = ({"name": name, "subject": name, "version": 1} for name in ("One", "Other"))
    of_one, of_other = (
        json.dumps({"type": "record", "name": name, "fields": [{"name": "at", "type": at}]})
        for name, at in (("One", "Other"), ("Other", "One"))
    )
    served.answers |= {
        "/schemas/ids/1": (200, {"schema": record("One"), "references": [one]}),
        "/subjects/One/versions/1": (200, {"schema": of_one, "references": [other]}),
        "/subjects/Other/versions/1": (200, {"schema": of_other, "references": [one]}),
    }
    assert outcome(served.reader(), frame(1, b"\x02")) == "unusable_schema"
    assert len(served.asked) == 3


def test_protobuf_is_asked_for_as_a_descriptor(served: Served) -> None:
    answer = {"schema": in_base64(FILE), "schemaType": "PROTOBUF"}
    served.answers["/schemas/ids/7?format=serialized"] = 200, answer
    served.answers["/schemas/ids/8?format=serialized"] = 200, {**answer, "schema": 'syntax = "proto3";'}
    read = served.reader("protobuf")
    assert texts(read(frame(7, b"\x00\x08\x05"))) == {"id": b"5"}
    found = read(frame(7, b"\x02\x02" + b"\x79" + struct.pack("<d", 2.0)))  # field 15 of the second message
    assert texts(found)["double"] == b"2.0"
    assert found_kinds(found)["uint64"] == "decimal(20,0)"
    with pytest.raises(ConfigurationError, match="format=serialized, found syntax"):
        read(frame(8, b"\x00"))
    assert len(served.asked) == 2
