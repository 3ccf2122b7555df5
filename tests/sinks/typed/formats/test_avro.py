"""Avro bodies, against fastavro's writer and its JSON, and by hand where the specification has the bytes."""

import io
import itertools
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.formats.avro import Avro
from sinks.typed.formats.binary import long_at
from sources.errors import ConfigurationError
from tests.sinks.typed.formats.columns import outcome, row_of, texts

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


def record(*types: object, **more: object) -> str:
    fields = [{"name": f"f{number}", "type": one} for number, one in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields, **more})


def encoded(schema: str, value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value, strict_allow_default=True)
    return out.getvalue()


def one(kind: object, data: bytes) -> tuple[Any, str | None]:
    """Of a record with one field of that type, written as these bytes: what its column has, and why not."""
    schema = Avro(record(kind))
    values, wrong = row_of(schema.fields(data), dict(schema.kinds))
    return values["f0"], wrong.get("f0")


@pytest.mark.parametrize(
    ("data", "number"),
    [  # the table of the specification, "Primitive Types"
        ("00", 0),
        ("01", -1),
        ("02", 1),
        ("03", -2),
        ("04", 2),
        ("7f", -64),
        ("8001", 64),
        ("feffffffffffffffff01", (1 << 63) - 1),
        ("ffffffffffffffffff01", -(1 << 63)),
    ],
)
def test_zigzag(data: str, number: int) -> None:
    assert long_at(bytes.fromhex(data), 0) == (number, len(data) // 2)


def test_the_records_of_the_specification() -> None:
    """ "Complex Types": a record, an array, a union."""
    of_two = json.dumps(
        {"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    )
    schema = Avro(of_two)
    assert row_of(schema.fields(bytes.fromhex("3606666f6f")), dict(schema.kinds))[0] == {"a": 27, "b": "foo"}
    assert one({"type": "array", "items": "long"}, bytes.fromhex("04063600")) == ("[3,27]", None)
    assert one({"type": "array", "items": "long"}, bytes.fromhex("0304063600")) == ("[3,27]", None)  # with its size
    assert one(["null", "string"], bytes.fromhex("00")) == (None, None)
    assert one(["null", "string"], bytes.fromhex("020261")) == ("a", None)


NUMBERS = itertools.count()
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": LONGS,
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": TEXTS,
}


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[object, st.SearchStrategy[Any]]:
    """A type, and values of it that fastavro's JSON has without names of branches."""
    choice = draw(st.sampled_from([*PLAIN, *(["array", "map", "record", "optional"] if depth else [])]))
    if choice in PLAIN:
        return choice, PLAIN[choice]
    inner, values = draw(typed(depth=depth - 1))
    match choice:
        case "array":
            return {"type": "array", "items": inner}, st.lists(values, max_size=3)
        case "map":
            return {"type": "map", "values": inner}, st.dictionaries(TEXTS, values, max_size=3)
        case "record":
            name = f"R{next(NUMBERS)}"
            return (
                {"type": "record", "name": name, "fields": [{"name": "x", "type": inner}]},
                st.fixed_dictionaries({"x": values}),
            )
    if isinstance(inner, list):
        return inner, values
    return ["null", inner], st.none() | values


@given(st.data())
def test_a_record_is_what_fastavro_wrote(data: st.DataObject) -> None:
    types = data.draw(st.lists(typed() | st.just(("null", st.none())), min_size=1, max_size=5))
    text = record(*(one for one, _ in types))
    value = {f"f{number}": data.draw(values) for number, (_, values) in enumerate(types)}
    body = encoded(text, value)
    schema = Avro(text)
    found = schema.body_fields(body)
    assert {name: json.loads(bytes(raw)) for name, raw in found.items()} == value
    values, wrong = row_of(found, dict(schema.kinds))
    assert not wrong
    for name, kind in schema.kinds.items():
        given_value = value[name]
        assert (
            json.loads(values[name]) if kind == "json" and values[name] is not None else values[name]
        ) == given_value
        assert type(values[name]) is type(given_value) or kind == "json"


def long_bytes(number: int) -> bytes:
    """Zig-zag, by shifts of what it says: even for numbers from 0 on, odd below."""
    left, out = (2 * number if number >= 0 else -2 * number - 1), b""
    while left > 0x7F:
        out, left = out + bytes([left % 128 + 128]), left // 128
    return out + bytes([left])


def decimals(precision: int, scale: int = 0) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


AMOUNT = decimals(5, scale=2)
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("kind", "data", "value", "reason"),
    [
        ("double", struct.pack("<d", float("nan")), None, "not_double"),
        ("double", struct.pack("<d", float("-inf")), None, "not_double"),
        ("float", struct.pack("<f", float("inf")), None, "not_double"),
        ("double", struct.pack("<d", 3.0), 3.0, None),
        ({"type": "array", "items": "double"}, b"\x02" + struct.pack("<d", float("nan")) + b"\0", '["NaN"]', None),
        ({"type": "int", "logicalType": "date"}, long_bytes(-719_163), None, "not_date"),  # the day before year 1
        ({"type": "int", "logicalType": "date"}, long_bytes(2_932_896), date(9999, 12, 31), None),
        ({"type": "int", "logicalType": "date"}, long_bytes(2_932_897), None, "not_date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, long_bytes(1 << 62), None, "not_timestamp"),
        ({"type": "long", "logicalType": "timestamp-millis"}, long_bytes(253_402_300_800_000), None, "not_timestamp"),
        (MICROS, long_bytes(-62_135_596_800_000_001), None, "not_timestamp"),
        (MICROS, long_bytes(-(1 << 63)), None, "not_timestamp"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, long_bytes(-1), "1969-12-31T23:59:59.999999999Z", None),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, long_bytes(1), "1970-01-01T00:00:00.001000", None),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, b"\x02", "1970-01-01T00:00:00.000000001", None),
        ({"type": "int", "logicalType": "time-millis"}, long_bytes(3_723_004), "01:02:03.004000", None),
        ({"type": "long", "logicalType": "time-micros"}, long_bytes(86_400_000_000), None, "not_string"),
        (
            {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            bytes(range(16)),
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
            None,
        ),
        ({"type": "string", "logicalType": "uuid"}, b"\x02a", "a", None),
        # 1,000.00 has more digits than its schema says
        (AMOUNT, b"\x06\x01\x86\xa0", None, "not_decimal(5,2)"),
        (AMOUNT, b"\x02\xff", Decimal("-0.01"), None),
        (AMOUNT, b"\x00", Decimal(0), None),
        ({**AMOUNT, "type": "fixed", "name": "F", "size": 8}, b"\xff" * 7 + b"\x9c", Decimal("-1.00"), None),
        ("bytes", b"\x04\xff\0", "/wA=", None),
        ({"type": "fixed", "name": "F", "size": 2}, b"\xff\0", "/wA=", None),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x02", "B", None),
        (["null", MICROS], b"\x02" + long_bytes(-1), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 1}, b"\x02\x0f", "1.5", None),
        (decimals(76), long_bytes(32) + b"\x7f" + b"\xff" * 31, str((1 << 255) - 1), None),
        (decimals(4300), long_bytes(1785) + b"\x7f" + b"\xff" * 1784, str((1 << 14_279) - 1), None),
        (decimals(4301, scale=4301), b"\x02\x0f", "Dw==", None),  # too many to be written as text
        (decimals(10**9, scale=10**9), b"\x02\x0f", "Dw==", None),
        ({"type": "int", "logicalType": "unheard-of"}, b"\x02", 1, None),
        ({"type": "bytes", "logicalType": "decimal"}, b"\x02\x0f", "Dw==", None),  # none, without its precision
        ({"type": "string", "logicalType": "date"}, b"\x02a", "a", None),
        (["int", "string"], b"\x02\x02a", '"a"', None),
        (["null", {"type": "long", "logicalType": "timestamp-millis"}, "long"], b"\x04\x02", "1", None),
    ],
)  # fmt: skip
def test_values(kind: object, data: bytes, value: object, reason: str | None) -> None:
    assert one(kind, data) == (value, reason)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("boolean", b"\x02"),
        ("int", long_bytes(1 << 31)),
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\xff" * 10 + b"\x01"),
        ("string", b"\x01"),  # of -1 bytes
        ("string", b"\x02\xff"),
        ("string", long_bytes(1 << 60) + b"a"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc"),
        ({"type": "map", "values": "null"}, long_bytes(1 << 60) + b"\0"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        (["null", "int"], b"\x01\x02"),
        (["null", "int"], b"\x04\x02"),
        ({"type": "array", "items": "null"}, long_bytes(1 << 60) + b"\0"),
        ({"type": "array", "items": "null"}, b"\x02\0"),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, b"\x04\x02\0\x02\0\0"),
        ({"type": "array", "items": "int"}, long_bytes(-(1 << 63)) + b"\0\0"),
        (AMOUNT, long_bytes(1_786) + b"\x7f" * 1_786),
        (AMOUNT, long_bytes(1_000_000) + b"\x7f" * 1_000_000),
    ],
)
def test_what_no_writer_writes(kind: object, data: bytes) -> None:
    assert outcome(Avro(record(kind)).body_fields, data) == "not_avro"


SAMPLE = record(
    "string", "long", ["null", "double"], {"type": "array", "items": "string"}, {"type": "map", "values": "int"}
)
SAMPLE_BODY = encoded(SAMPLE, {"f0": "abc", "f1": -(1 << 40), "f2": 1.5, "f3": ["x", "yz"], "f4": {"k": 1}})


def test_a_body_cut_anywhere_or_with_more_behind_it_is_none() -> None:
    read = Avro(SAMPLE).body_fields
    assert outcome(read, SAMPLE_BODY) is None
    for size in range(len(SAMPLE_BODY)):
        assert outcome(read, SAMPLE_BODY[:size]) == "not_avro", size
    assert outcome(read, SAMPLE_BODY + b"\0") == "trailing_bytes"
    assert outcome(read, None) == "no_body"


@given(st.lists(st.tuples(st.integers(0, len(SAMPLE_BODY) - 1), st.integers(0, 255)), max_size=3))
def test_a_damaged_body_is_what_fastavro_reads_or_a_misfit(damage: list[tuple[int, int]]) -> None:
    body = bytearray(SAMPLE_BODY)
    for place, byte in damage:
        body[place] = byte
    read = Avro(SAMPLE).body_fields
    if outcome(read, bytes(body)) is None:
        found = {name: json.loads(text) for name, text in texts(read(bytes(body))).items()}
        said: Any = fastavro.schemaless_reader(io.BytesIO(bytes(body)), fastavro.parse_schema(json.loads(SAMPLE)))
        assert found == {name: "NaN" if value != value else value for name, value in said.items()}


def test_a_fingerprint_is_the_specifications() -> None:
    """CRC-64-AVRO by the specification's own program, of the canonical form by hand."""
    table = []
    for start in range(256):
        crc = start
        for _ in range(8):
            crc = (crc >> 1) ^ (0xC15D213AA4D7A795 if crc & 1 else 0)
        table.append(crc)
    crc = 0xC15D213AA4D7A795
    for byte in b'{"name":"a.R","type":"record","fields":[{"name":"f0","type":"long"}]}':
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    text = record("long", namespace="a", doc="of no account")
    body = b"\xc3\x01" + crc.to_bytes(8, "little") + b"\x02"
    assert texts(Avro(text).body_fields(body)) == {"f0": b"1"}
    assert outcome(Avro(record("long")).body_fields, body) == "unknown_schema"
    assert outcome(Avro(text).body_fields, body[:-1]) == "not_avro"
    assert outcome(Avro(text).body_fields, body + b"\0") == "trailing_bytes"


def test_a_number_that_begins_as_the_single_object_encoding() -> None:
    assert texts(Avro(record("long")).body_fields(b"\xc3\x01")) == {"f0": b"-98"}


LIST = json.dumps({"type": "record", "name": "a.L", "fields": [{"name": "next", "type": ["null", "L"]}]})


def test_records_in_themselves() -> None:
    schema = Avro(LIST)
    assert dict(schema.kinds) == {"next": "json"}
    assert texts(schema.fields(b"\x02\x02\x00")) == {"next": b'{"next":{"next":null}}'}
    for deep in (200, 5_000, 1_000_000):
        assert outcome(schema.body_fields, b"\x02" * deep + b"\x00") == "too_deep"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "7", "[]", '"string"', '["null", "int"]', '{"type":"record"}', '{"type":"array","items":"int"}'),
        *(record(kind) for kind in ("nothing", {"type": "enum"}, {**AMOUNT, "scale": 6})),
    ],
)
def test_what_is_no_schema_of_records(text: str) -> None:
    with pytest.raises(ConfigurationError, match="Avro schema"):
        Avro(text)
