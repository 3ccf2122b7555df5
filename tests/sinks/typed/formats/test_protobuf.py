"""Protobuf bodies, against protobuf's own JSON, and by hand where the wire format has the bytes."""

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.columns import column_name
from sinks.typed.formats.json_fields import UNKNOWN
from sinks.typed.formats.protobuf import Protobuf, of_descriptor_set, of_registered
from sources.errors import ConfigurationError
from tests.sinks.typed.formats.columns import outcome, row_of, texts

Field = descriptor_pb2.FieldDescriptorProto
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SCALARS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "bool": ("boolean", st.booleans()),
    "string": ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=10)),
    "bytes": ("string", st.binary(max_size=10)),
    "int32": ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    "sint32": ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    "sfixed32": ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    "uint32": ("bigint", st.integers(0, (1 << 32) - 1)),
    "fixed32": ("bigint", st.integers(0, (1 << 32) - 1)),
    "int64": ("bigint", INT64),
    "sint64": ("bigint", INT64),
    "sfixed64": ("bigint", INT64),
    "uint64": ("decimal(20,0)", st.integers(0, (1 << 64) - 1)),
    "fixed64": ("decimal(20,0)", st.integers(0, (1 << 64) - 1)),
    "float": ("double", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "double": ("double", st.floats(allow_nan=False, allow_infinity=False)),
}


def field(
    name: str, number: int, kind: str, label: str = "OPTIONAL", **more: Any
) -> descriptor_pb2.FieldDescriptorProto:
    named = {"type_name": kind} if kind.startswith(".") else {}
    of_type = "TYPE_MESSAGE" if named else f"TYPE_{kind.upper()}"
    given_fields = {"type": of_type, **named, **more}
    return json_format.ParseDict({"name": name, "number": number, "label": f"LABEL_{label}", **given_fields}, Field())


def message(name: str, *fields: descriptor_pb2.FieldDescriptorProto) -> descriptor_pb2.DescriptorProto:
    return descriptor_pb2.DescriptorProto(name=name, field=fields)


def orders() -> descriptor_pb2.FileDescriptorProto:
    """As protoc makes it of a .proto of syntax proto3, package shop."""
    order = message("Order", *(field(name, number, name) for number, name in enumerate(SCALARS, 1)))
    order.field.extend(
        [
            field("set_or_not", 30, "int64", proto3_optional=True, oneof_index=0),
            field("at", 31, ".google.protobuf.Timestamp"),
            field("wrapped", 32, ".google.protobuf.UInt64Value"),
            field("lines", 33, ".shop.Order.Line", "REPEATED"),
            field("numbers", 34, "int32", "REPEATED"),
            field("counts", 35, ".shop.Order.CountsEntry", "REPEATED"),
            field("flags", 36, ".shop.Order.FlagsEntry", "REPEATED"),
            field("inner", 37, ".shop.Order"),
            field("state", 38, ".shop.State", type="TYPE_ENUM"),
            field("extra", 39, ".google.protobuf.Struct"),
            field("camelCase", 40, "string", json_name="other"),
        ]
    )
    order.oneof_decl.add(name="_set_or_not")
    order.nested_type.extend(
        [
            message("Line", field("sku", 1, "string"), field("amount", 2, "double")),
            message("CountsEntry", field("key", 1, "string"), field("value", 2, "int64")),
            message("FlagsEntry", field("key", 1, "bool"), field("value", 2, ".shop.Order.Line")),
        ]
    )
    for entry in order.nested_type[1:]:
        entry.options.map_entry = True
    file = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "struct"))
    file.message_type.extend([message("Other", field("id", 1, "int32")), order])
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=7)
    return file


FILE = orders()


def in_base64(found: Any) -> str:
    return base64.b64encode(found.SerializeToString()).decode()


def of_set(*files: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet(file=files)


def of(*files: descriptor_pb2.FileDescriptorProto, name: str = "shop.Order") -> Protobuf:
    return of_descriptor_set(in_base64(of_set(*files)), name)


ORDER = of(FILE)


def _order() -> Any:
    pool = DescriptorPool()
    for one in (timestamp_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
    pool.Add(FILE)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Order = _order()


def row(body: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    return row_of(ORDER.fields(body), dict(ORDER.kinds))


@given(st.fixed_dictionaries({name: values for name, (_, values) in SCALARS.items()}))
def test_scalars_are_what_was_set(value: dict[str, Any]) -> None:
    assert {name: ORDER.kinds[name] for name in SCALARS} == {name: kind for name, (kind, _) in SCALARS.items()}
    found, wrong = row(Order(**value).SerializeToString())
    assert not wrong
    found["bytes"] = base64.b64decode(found["bytes"], validate=True)
    assert {name: found[name] for name in SCALARS} == value


MESSAGES = st.builds(
    Order,
    int64=INT64,
    at=st.datetimes(),
    lines=st.lists(st.builds(dict, sku=SCALARS["string"][1], amount=SCALARS["float"][1]), max_size=2),
    numbers=st.lists(SCALARS["int32"][1], max_size=3),
    counts=st.dictionaries(SCALARS["string"][1], INT64, max_size=3),
    state=st.sampled_from([0, 7]),
    camelCase=SCALARS["string"][1],
)


@given(MESSAGES)
def test_json_is_protobufs_own(given_message: Any) -> None:
    """But for integers of 64 bits, which its JSON has as strings."""
    given_message.inner.flags[True].sku = "x"
    given_message.inner.set_or_not = 0
    given_message.extra["deep"] = {"list": [1.5, None, True]}
    found = {name: json.loads(text) for name, text in texts(ORDER.fields(given_message.SerializeToString())).items()}
    said = json_format.MessageToDict(
        given_message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    found["counts"] = {name: str(number) for name, number in found["counts"].items()}
    for one in (found, found["inner"]):
        for name in ("int64", "sint64", "sfixed64", "uint64", "fixed64"):
            one[name] = str(one[name])
    found["inner"]["set_or_not"] = str(found["inner"]["set_or_not"])
    found["at"] = said["at"] = None  # as instants: `tests/fuzz/bodies.py`
    assert found == said


def test_what_is_not_set_is_missing_where_that_can_be_known() -> None:
    found, wrong = row(b"")
    assert not wrong
    assert {name: found[name] for name in ("set_or_not", "at", "wrapped", "inner", "extra")} == dict.fromkeys(
        ("set_or_not", "at", "wrapped", "inner", "extra")
    )
    assert (found["int64"], found["string"], found["bool"], found["uint64"]) == (0, "", False, Decimal(0))
    assert (found["lines"], found["counts"], found["state"], found["camelCase"]) == ("[]", "{}", "NEW", "")
    assert row(Order(set_or_not=0).SerializeToString())[0]["set_or_not"] == 0
    assert row(Order(wrapped={"value": (1 << 64) - 1}).SerializeToString())[0]["wrapped"] == Decimal((1 << 64) - 1)


@pytest.mark.parametrize(
    ("value", "name", "reason"),
    [
        ({"float": float("-inf")}, "float", "not_double"),
        ({"state": 9}, "state", "not_string"),
        ({"at": {"seconds": 253_402_300_800}}, "at", "not_timestamp"),
        ({"at": {"nanos": 1_000_000_000}}, "at", "not_timestamp"),
    ],
)
def test_a_value_that_no_column_takes(value: dict[str, Any], name: str, reason: str) -> None:
    found, wrong = row(Order(**value).SerializeToString())
    assert (found[name], wrong) == (None, {name: reason})


def test_what_the_schema_does_not_know_is_kept() -> None:
    """Field 1000, wire type 0, value 1; then the same in a line of the order."""
    unknown = b"\xc0\x3e\x01"
    line = b"\x0a\x01a" + unknown
    body = Order(int64=5).SerializeToString() + unknown
    body += b"\x8a\x02" + bytes([len(line)]) + line  # field 33, wire type 2
    found = ORDER.fields(body)
    kept = base64.b64encode(unknown).decode()
    assert json.loads(bytes(found[UNKNOWN])) == kept
    assert json.loads(bytes(found["lines"])) == [{"sku": "a", "amount": 0, UNKNOWN: kept}]
    assert bytes(found["int64"]) == b"5"
    assert column_name(UNKNOWN, {}) is None


SAMPLE = Order(
    int64=-1, string="äöü", double=1.5, at={"seconds": 5}, lines=[{"sku": "a"}], counts={"x": 1}, inner={"bool": True}
).SerializeToString()


def test_a_body_cut_anywhere_is_a_misfit_or_a_shorter_message() -> None:
    for size in range(len(SAMPLE)):
        try:
            whole = Order.FromString(SAMPLE[:size])
        except Exception:  # noqa: BLE001
            whole = None
        assert outcome(ORDER.fields, SAMPLE[:size]) == (None if whole is not None else "not_protobuf")


@pytest.mark.parametrize(
    "body",
    [
        b"\x08",  # the number is missing
        b"\x12\x05ab",  # five bytes of two
        b"\x12\x01\xff",  # no UTF-8
        b"\x0f",  # no wire type
        b"\x00\x01",  # field 0
        b"\x08" + b"\xff" * 11,
    ],
)
def test_what_is_no_message(body: bytes) -> None:
    assert outcome(ORDER.fields, body) == "not_protobuf"


def test_messages_in_themselves() -> None:
    body = b""
    for _ in range(300):
        length = len(body)
        head = bytes([length]) if length < 128 else bytes([length % 128 + 128, length // 128])
        body = b"\xaa\x02" + head + body  # field 37, inner
    assert outcome(ORDER.fields, body) in ("not_protobuf", "too_deep")
    assert outcome(ORDER.fields, None) == "no_body"


def test_a_descriptor_set_by_parts() -> None:
    """Google's own files may be missing, others not; the order is any."""
    line = descriptor_pb2.FileDescriptorProto(
        name="line.proto", package="a", message_type=[message("L", field("n", 1, "int32"))]
    )
    use = descriptor_pb2.FileDescriptorProto(
        name="use.proto", package="b", dependency=["line.proto"], message_type=[message("U", field("line", 1, ".a.L"))]
    )
    assert dict(of(use, line, name="b.U").kinds) == {"line": "json"}
    assert texts(of(line, use, name="b.U").fields(b"\x0a\x02\x08\x05")) == {"line": b'{"n":5}'}
    with pytest.raises(ConfigurationError, match="include_imports"):
        of(use, name="b.U")
    with pytest.raises(ConfigurationError, match=r"one of b\.U, a\.L"):
        of(use, line, name="b.Nobody")
    with pytest.raises(ConfigurationError, match="not a descriptor set"):
        of_descriptor_set(base64.b64encode(b"syntax = 3").decode(), "a.L")


def test_defaults_of_proto2_are_no_values() -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="two.proto", message_type=[message("Two", field("n", 1, "int32", default_value="7"))]
    )
    assert texts(of(file, name="Two").fields(b"")) == {}
    assert texts(of(file, name="Two").fields(b"\x08\x00")) == {"n": b"0"}


def test_extensions_are_fields_with_their_full_names() -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="two.proto", package="a", message_type=[message("Two", field("n", 1, "int32"))]
    )
    file.message_type[0].extension_range.add(start=100, end=200)
    file.extension.add().CopyFrom(field("more", 100, "string", extendee=".a.Two"))
    body = b"\x08\x01" + b"\xa2\x06\x01x" + b"\xc0\x3e\x01"  # field 100, and field 1000, which nobody knows
    found = texts(of(file, name="a.Two").fields(body))
    assert found == {
        "n": b"1",
        "[a.more]": b'"x"',
        UNKNOWN: json.dumps(base64.b64encode(b"\xc0\x3e\x01").decode()).encode(),
    }


def test_bodies_of_a_registry_say_which_message() -> None:
    """Confluent's message indexes: how many, then each, as zig-zag; 00 is the first message."""
    read = of_registered(in_base64(FILE), [])
    assert texts(read(b"\x00\x08\x05")) == {"id": b"5"}
    assert texts(read(b"\x02\x00\x08\x05")) == {"id": b"5"}
    assert texts(read(b"\x04\x02\x00\x0a\x01a")) == {"sku": b'"a"', "amount": b"0.0"}
    for wrong, reason in ((b"", "not_protobuf"), (b"\x02\x04", "unknown_message"), (b"\x04\x00\x00", "unknown_message"),
                          (b"\x02\x01", "unknown_message"), (b"\x00\x08", "not_protobuf")):  # fmt: skip
        assert outcome(lambda body: read(body or b""), wrong) == reason
    with pytest.raises(ConfigurationError, match="not a file descriptor"):
        of_registered(base64.b64encode(b"syntax = 3").decode(), [])


def test_what_json_cannot_say_inside_a_struct() -> None:
    value = Order()
    value.extra.fields["nan"].number_value = float("nan")
    value.extra.fields["none"].SetInParent()
    found, wrong = row(value.SerializeToString())
    assert json.loads(found["extra"]) == {"nan": "NaN", "none": None}
    assert not wrong


def test_a_string_that_is_no_utf8_is_none_in_proto2_either() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="two.proto", message_type=[message("Two", field("s", 1, "string"))])
    assert outcome(of(file, name="Two").fields, b"\x0a\x01\xff") == "not_protobuf"
