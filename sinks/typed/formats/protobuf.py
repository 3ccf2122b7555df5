"""Protobuf bodies: one message each, whose type is in a descriptor set (``protoc --include_imports -o``). Pure.

    type of the field                       kind of the column   what stands for a value
    bool, string                            boolean, string
    int32, sint32, sfixed32                 int
    uint32, fixed32, int64, sint64, sfixed64   bigint
    uint64, fixed64                         decimal(20,0)
    float, double                           double               a float as the double that it is exactly
    bytes                                   string               base64
    enum                                    string               its name; a number without a name is a misfit
    google.protobuf.Timestamp               timestamp            microseconds; nanoseconds are cut off
    google.protobuf.…Value (wrappers)       that of its value
    message, group, repeated, map           json, or a kind with parts if the table wants them
    Struct, Value, ListValue                json                 the JSON that they are

Fields are named as in the .proto, an extension `[its full name]`. A field with presence (message, optional, oneof) is
missing if it is not set; any other has its default. Fields that the type does not know are in `UNKNOWN`, a name that no
column can have, as base64 of their bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from sinks.typed.formats.binary import described, instant, long_at, number, text_of_bytes
from sinks.typed.formats.json_fields import UNKNOWN, DescribedFields, NoObject, given
from sinks.typed.kinds import JSON, Array, Map, Opened, Struct, kind_of_schema
from sources.errors import ConfigurationError

_GOOGLES: Final = {
    one.DESCRIPTOR.name: one.DESCRIPTOR.serialized_pb
    for one in (
        any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
        timestamp_pb2, type_pb2, wrappers_pb2,
    )
}  # fmt: skip
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(one.full_name for one in wrappers_pb2.DESCRIPTOR.message_types_by_name.values())
_AS_JSON: Final = frozenset(one.full_name for one in struct_pb2.DESCRIPTOR.message_types_by_name.values())
_KINDS: Final = {
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "string",
    FieldDescriptor.TYPE_ENUM: "string",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_UINT32: "bigint",
    FieldDescriptor.TYPE_FIXED32: "bigint",
    FieldDescriptor.TYPE_INT64: "bigint",
    FieldDescriptor.TYPE_SINT64: "bigint",
    FieldDescriptor.TYPE_SFIXED64: "bigint",
    FieldDescriptor.TYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.TYPE_FIXED64: "decimal(20,0)",
    FieldDescriptor.TYPE_FLOAT: "double",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


class Protobuf:
    """A reader of messages of one type; `kinds` are those of its fields."""

    def __init__(self, type_: Descriptor, *, nested: bool = False) -> None:
        """If `nested`, messages, repeated fields and maps have kinds with parts."""
        self._class = GetMessageClass(type_)
        self.kinds: Mapping[str, str] = {one.name: _kind(one, nested) for one in type_.fields}

    def fields(self, body: bytes | None) -> DescribedFields:
        """The fields of a message. Raises NoObject."""
        body = given(body)
        message = self._class()
        try:
            message.ParseFromString(body)
            value = _object(message)
        except RecursionError:
            raise NoObject("too_deep", "messages in each other") from None
        except (DecodeError, ValueError) as error:  # a UnicodeDecodeError is one
            raise NoObject("not_protobuf", str(error)) from None
        return described(value, self.kinds)


def of_descriptor_set(data: str, message: str, *, nested: bool = False) -> Protobuf:
    """The reader of the type `message` in a descriptor set, in base64. Raises ConfigurationError."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(data, validate=True)).file
    except (DecodeError, ValueError) as error:
        raise ConfigurationError("not a descriptor set", expected="what protoc -o writes", found=error) from error
    pool = _pool(files)
    try:
        return Protobuf(pool.FindMessageTypeByName(message), nested=nested)
    except KeyError:
        listed = ", ".join(f"{one.package}.{type_.name}".lstrip(".") for one in files for type_ in one.message_type)
        raise ConfigurationError(
            "the descriptor set has no such message", expected=f"one of {listed or 'none'}", found=message
        ) from None


def of_registered(
    text: str, others: Sequence[tuple[str, str]], *, nested: bool = False
) -> Callable[[bytes], DescribedFields]:
    """A reader of frames without their head: the path of the message's type in the file, then the message.

    `text` and `others` are file descriptors in base64, as a registry serializes them. Raises ConfigurationError.
    """
    files = [_file(name, one) for name, one in [*others, ("", text)]]
    file = _pool(files).FindFileByName(files[-1].name)
    types: dict[tuple[int, ...], Protobuf] = {}

    def read(data: bytes) -> DescribedFields:
        path, end = _path(data)
        if path not in types:
            types[path] = Protobuf(_type_at(file, path), nested=nested)
        return types[path].fields(data[end:])

    return read


def _file(name: str, text: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (DecodeError, ValueError) as error:
        raise ConfigurationError("not a file descriptor", found=error) from error
    found.name = name or "the schema itself"
    return found


def _path(data: bytes) -> tuple[tuple[int, ...], int]:
    """The path of a message's type, and where it ends.

    It is encoded as a count and so many indexes: of a type in the file, of one nested in that, and so on. A count of 0
    is the first type of the file. Raises NoObject.
    """
    try:
        count, at = long_at(data, 0)
        if count == 0:
            return (0,), at
        path = []
        for _ in range(count):
            one, at = long_at(data, at)
            path.append(one)
    except (IndexError, ValueError):
        raise NoObject("not_protobuf", "no numbers that say which message of the schema it is") from None
    return tuple(path), at


def _type_at(file: Any, path: Sequence[int]) -> Descriptor:
    types: list[Descriptor] = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for one in path:
        if not 0 <= one < len(types):
            found = None
            break
        found = types[one]
        types = list(found.nested_types)
    if found is None:
        raise NoObject("unknown_message", f"the schema has no message {list(path)}")
    return found


def _pool(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> DescriptorPool:
    """A pool of `files`, in any order; Google's own need not be among them. Raises ConfigurationError."""
    given_files = {one.name: one for one in files}
    pool = DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        file = given_files.get(name)
        if file is None and name in _GOOGLES:
            file = descriptor_pb2.FileDescriptorProto.FromString(_GOOGLES[name])
        if file is None:
            raise ConfigurationError(
                "a descriptor lacks what it imports", expected=name, found=", ".join(given_files),
                hint="Make it with protoc --include_imports -o FILE.",
            )  # fmt: skip
        for one in file.dependency:
            add(one)
        pool.Add(file)

    try:
        for name in given_files:
            add(name)
    except (TypeError, RecursionError) as error:
        raise ConfigurationError("descriptors that contradict each other", found=error) from error
    return pool


def _kind(field: FieldDescriptor, nested: bool) -> str:
    if nested:
        return kind_of_schema((field, False), _opened)
    found = _opened((field, False))
    return found if isinstance(found, str) else JSON


def _opened(of: tuple[FieldDescriptor, bool]) -> Opened[tuple[FieldDescriptor, bool]]:
    """The parts of a field, or of an item of one that is repeated."""
    field, is_item = of
    type_ = field.message_type
    if field.is_repeated and not is_item:
        if type_ is not None and type_.GetOptions().map_entry:
            return object(), Map((type_.fields_by_name["value"], False))
        return object(), Array((field, True))
    if type_ is None:
        return _KINDS[field.type]
    if type_.full_name in _WRAPPERS:
        return _opened((type_.fields_by_name["value"], False))
    if type_.full_name in _AS_JSON:
        return JSON
    if type_.full_name == _TIMESTAMP:
        return "timestamp"
    return type_.full_name, Struct(tuple((one.name, (one, False)) for one in type_.fields))


def _object(message: Any) -> dict[str, Any]:
    found = {
        one.name: _value(one, getattr(message, one.name))
        for one in message.DESCRIPTOR.fields
        if not one.has_presence or message.HasField(one.name)
    }
    if message.DESCRIPTOR.is_extendable:
        found |= {f"[{one.full_name}]": _value(one, value) for one, value in message.ListFields() if one.is_extension}
    if len(UnknownFieldSet(message)):
        for one, _ in message.ListFields():
            if one.is_extension:
                message.ClearExtension(one)
            else:
                message.ClearField(one.name)
        found[UNKNOWN] = text_of_bytes(message.SerializeToString())
    return found


def _value(field: Any, value: Any) -> Any:
    if not field.is_repeated:
        return _one(field, value)
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        return [_one(field, one) for one in value]
    of = field.message_type.fields_by_name
    return {_name(_one(of["key"], one)): _one(of["value"], value[one]) for one in value}


def _name(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _one(field: Any, value: Any) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE | FieldDescriptor.TYPE_GROUP:
            return _message(value)
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return number(value)
        case FieldDescriptor.TYPE_BYTES:
            return text_of_bytes(value)
        case FieldDescriptor.TYPE_STRING if isinstance(value, bytes):  # of proto2
            raise ValueError(f"{field.name}: a string that is not UTF-8")
        case FieldDescriptor.TYPE_ENUM:
            known = field.enum_type.values_by_number.get(value)
            return value if known is None else known.name
    return value


def _message(message: Any) -> Any:
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP and 0 <= message.nanos < 1_000_000_000:
        return instant(message.seconds * 1_000_000 + message.nanos // 1000)
    if name in _WRAPPERS:
        return _one(message.DESCRIPTOR.fields_by_name["value"], message.value)
    return _json(message) if name in _AS_JSON else _object(message)


def _json(message: Any) -> Any:
    """The JSON value of a Struct, ListValue or Value."""
    if message.DESCRIPTOR.name == "Struct":
        return {name: _json(one) for name, one in message.fields.items()}
    if message.DESCRIPTOR.name == "ListValue":
        return [_json(one) for one in message.values]
    match kind := message.WhichOneof("kind"):
        case None | "null_value":
            return None
        case "number_value":
            return number(message.number_value)
        case "struct_value" | "list_value":
            return _json(getattr(message, kind))
    return getattr(message, kind)
