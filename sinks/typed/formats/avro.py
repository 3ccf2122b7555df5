"""Avro bodies (specification 1.12). Pure.

A body is the binary encoding of one record, or a record in Avro's single-object encoding: C3 01, then the CRC-64-AVRO
of the schema's canonical form, little-endian, then the binary encoding. A body that begins with C3 01 is taken for the
latter.

    schema                                    kind of the column    what stands for a value
    boolean, int, long, string                boolean, int, bigint, string
    float, double                             double                a float as the double that it is exactly
    bytes, fixed                              string                base64
    enum                                      string                its symbol
    date                                      date
    timestamp-millis, timestamp-micros        timestamp
    timestamp-nanos                           string                RFC 3339 with nine digits: a column has six
    local-timestamp-…                         string                ISO 8601 without a zone
    time-millis, time-micros                  string                microseconds or less: 12:34:56.789000
    decimal                                   decimal(p,s)          a string; beyond 38 digits so is the column, and
                                                                    beyond 4,300 it is the bytes that it is stored as
    uuid                                      string
    record, array, map                        json, or a kind with parts if the table wants them
    union of several                          json
    null or one of these                      that one's

fastavro parses the schema, but does not read bodies: it takes branch -1 of a union, or symbol -1 of an enum, for the
last one, and a body of a recursive schema can crash the process.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from fastavro.schema import SchemaParseException, UnknownType, fingerprint, parse_schema, to_parsing_canonical_form

from sinks.typed.formats.binary import day, described, instant, long_at, number, text_of_bytes
from sinks.typed.formats.json_fields import DescribedFields, NoObject, given
from sinks.typed.kinds import JSON, MOST_DIGITS, Array, Map, Opened, Struct, kind_of_schema
from sources.errors import ConfigurationError

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value from bytes and its start. Returns the value, as in JSON, and its end."""

_SINGLE: Final = b"\xc3\x01"
_SINGLE_BYTES: Final = 10
_UUID_BYTES: Final = 16
_ONE_BYTE: Final = 0x80
"""Below it a byte is a whole number, zig-zag: an even one is none below zero."""
_MOST_DECIMAL_DIGITS: Final = 4_300  # as many as Python makes text of in one go: that takes quadratic time
_MOST_DECIMAL_BYTES: Final = 1_785
"""No longer two's complement has so few digits."""


class Avro:
    """A reader of bodies of one schema; `kinds` are those of its fields."""

    def __init__(self, schema: str, others: Sequence[str] = (), *, nested: bool = False) -> None:
        """Parse the schema's JSON; `others` are schemas whose names it uses, each after those that it uses itself.

        If `nested`, records, arrays and maps have kinds with parts.
        Raises ConfigurationError.
        """
        self.named: dict[str, Any] = {}
        self._readers: dict[str, Read] = {}
        try:
            for other in others:
                parse_schema(json.loads(other), self.named)
            parsed = parse_schema(json.loads(schema), self.named)
            self.fingerprint = bytes.fromhex(fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO"))
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigurationError("not an Avro schema", found=f"{type(error).__name__}: {error}") from error
        if not isinstance(parsed, dict) or parsed["type"] not in ("record", "error"):
            raise ConfigurationError("an Avro schema of something without fields", expected="a record", found=schema)
        self.schema: Mapping[str, Any] = parsed
        self.kinds: Mapping[str, str] = {one["name"]: self._kind(one["type"], nested) for one in parsed["fields"]}
        self._record = self._reader(parsed)

    def fields(self, data: bytes) -> DescribedFields:
        """The fields of a record in the binary encoding. Raises NoObject."""
        return described(self.value(data), self.kinds)

    def value(self, data: bytes) -> dict[str, Any]:
        """A record in the binary encoding, as values of JSON. Raises NoObject."""
        try:
            value, end = self._record(data, 0)
        except IndexError:
            raise NoObject("not_avro", f"{len(data)} bytes, which end before the record does") from None
        except RecursionError:
            raise NoObject("too_deep", "records in each other") from None
        except (ValueError, struct.error) as error:
            raise NoObject("not_avro", str(error)) from None
        if end != len(data):
            raise NoObject("trailing_bytes", f"{len(data) - end} bytes after the record")
        found: dict[str, Any] = value
        return found

    def body_fields(self, body: bytes | None) -> DescribedFields:
        """The fields of a body in either encoding. Raises NoObject."""
        body = given(body)
        if body[:2] != _SINGLE or len(body) < _SINGLE_BYTES:
            return self.fields(body)
        if body[2:_SINGLE_BYTES] != self.fingerprint:
            raise NoObject("unknown_schema", f"fingerprint {body[2:_SINGLE_BYTES].hex()}")
        return self.fields(body[_SINGLE_BYTES:])

    @staticmethod
    def logical(schema: dict[str, Any]) -> tuple[str, Callable[[Any], Any]] | None:
        """The kind of a logical type, and what converts its values; None if there is no known logical type."""
        return _logical(schema)

    @staticmethod
    def primitive(name: str) -> Read:
        return _PRIMITIVES[name][1]

    def _kind(self, schema: Any, nested: bool) -> str:
        if nested:
            return kind_of_schema(schema, self._opened)
        found = self._opened(schema)
        return found if isinstance(found, str) else JSON

    def _opened(self, schema: Any) -> Opened[Any]:
        schema = self.named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            return self._opened(others[0]) if len(others) == 1 else JSON
        if isinstance(schema, str):
            return _PRIMITIVES[schema][0]
        if (logical := self.logical(schema)) is not None:
            return logical[0]
        match schema["type"]:
            case "enum" | "fixed":
                return "string"
            case "record" | "error":
                return schema["name"], Struct(tuple((one["name"], one["type"]) for one in schema["fields"]))
            case "array":
                return object(), Array(schema["items"])
            case "map":
                return object(), Map(schema["values"])
            case name:
                return _PRIMITIVES[name][0] if isinstance(name, str) and name in _PRIMITIVES else JSON

    def _reader(self, schema: Any) -> Read:
        if isinstance(schema, list):
            return _union([self._reader(one) for one in schema])
        if isinstance(schema, str):
            return self.primitive(schema) if schema in _PRIMITIVES else self._by_name(schema)
        logical = self.logical(schema)
        match schema["type"]:
            case "record" | "error":
                return _record([(one["name"], self._reader(one["type"])) for one in schema["fields"]])
            case "array":
                return _array(self._reader(schema["items"]))
            case "map":
                return _map(self._reader(schema["values"]))
            case "enum":
                return _enum(schema["symbols"])
            case "fixed":
                return _converted(_fixed(schema["size"]), text_of_bytes if logical is None else logical[1])
            case "bytes" if logical is not None:
                return _converted(_bytes, logical[1])
            case other:
                read = self._reader(other)
                return read if logical is None else _converted(read, logical[1])

    def _by_name(self, name: str) -> Read:
        """A reader that is made with the first value, because a record may contain itself."""

        def read(data: bytes, at: int) -> tuple[Any, int]:
            if name not in self._readers:
                self._readers[name] = self._reader(self.named[name])
            return self._readers[name](data, at)

        return read


def _logical(schema: dict[str, Any]) -> tuple[str, Callable[[Any], Any]] | None:
    name, written = schema.get("logicalType"), schema["type"]
    if name == "decimal" and written in ("bytes", "fixed") and 0 < schema.get("precision", 0) <= _MOST_DECIMAL_DIGITS:
        return _decimal(schema)
    if name == "uuid" and written == "fixed" and schema["size"] == _UUID_BYTES:
        return "string", lambda value: str(uuid.UUID(bytes=value))
    return _LOGICAL.get((written, name)) if isinstance(name, str) else None


def _decimal(schema: dict[str, Any]) -> tuple[str, Callable[[bytes], str]]:
    digits, scale = schema["precision"], schema.get("scale") or 0
    kind = f"decimal({digits},{scale})" if digits <= MOST_DIGITS else "string"

    def text(value: bytes) -> str:
        if len(value) > _MOST_DECIMAL_BYTES:
            raise ValueError(f"a decimal of {len(value):,} bytes")
        unscaled = int.from_bytes(value, "big", signed=True)
        return f"{Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)):f}"

    return kind, text


def _local(micros: int) -> str | int:
    text = instant(micros)
    return text if isinstance(text, int) else text.removesuffix("+00:00")


def _nanos(nanos: int) -> str:
    return f"{_local(nanos // 1_000_000_000 * 1_000_000)}.{nanos % 1_000_000_000:09}"


def _time(micros: int) -> str | int:
    if not 0 <= micros < 86_400_000_000:
        return micros
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).time().isoformat()


_LOGICAL: Final[Mapping[tuple[str, str], tuple[str, Callable[[Any], Any]]]] = {
    ("int", "date"): ("date", day),
    ("int", "time-millis"): ("string", lambda value: _time(value * 1000)),
    ("long", "time-micros"): ("string", _time),
    ("long", "timestamp-millis"): ("timestamp", lambda value: instant(value * 1000)),
    ("long", "timestamp-micros"): ("timestamp", instant),
    ("long", "timestamp-nanos"): ("string", lambda value: f"{_nanos(value)}Z"),
    ("long", "local-timestamp-millis"): ("string", lambda value: _local(value * 1000)),
    ("long", "local-timestamp-micros"): ("string", _local),
    ("long", "local-timestamp-nanos"): ("string", _nanos),
}


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError(f"a boolean of {data[at]:#04x}")
    return data[at] == 1, at + 1


def _int(data: bytes, at: int) -> tuple[int, int]:
    found, end = long_at(data, at)
    if not -(1 << 31) <= found < 1 << 31:
        raise ValueError(f"an int of more than 32 bits: {found}")
    return found, end


def _size(data: bytes, at: int) -> tuple[int, int]:
    """A size in bytes, and where it ends. Raises IndexError if fewer bytes follow."""
    size, start = long_at(data, at)
    if size < 0:
        raise ValueError(f"a length of {size}")
    if start + size > len(data):
        raise IndexError
    return size, start


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, start = _size(data, at)
    return data[start : start + size], start + size


def _string(data: bytes, at: int) -> tuple[str, int]:
    byte = data[at]
    if byte & 1 or byte >= _ONE_BYTE:
        size, start = _size(data, at)
        return data[start : start + size].decode(), start + size
    end = at + 1 + (byte >> 1)  # as it usually is
    if end > len(data):
        raise IndexError
    return data[at + 1 : end].decode(), end


def _floating(layout: struct.Struct) -> Read:
    unpack, size = layout.unpack_from, layout.size
    return lambda data, at: (number(unpack(data, at)[0]), at + size)


def _converted(read: Read, convert: Callable[[Any], Any]) -> Read:
    def found(data: bytes, at: int) -> tuple[Any, int]:
        value, end = read(data, at)
        return convert(value), end

    return found


_PRIMITIVES: Final[Mapping[str, tuple[str, Read]]] = {
    "null": ("json", _null),
    "boolean": ("boolean", _boolean),
    "int": ("int", _int),
    "long": ("bigint", long_at),
    "float": ("double", _floating(struct.Struct("<f"))),
    "double": ("double", _floating(struct.Struct("<d"))),
    "bytes": ("string", _converted(_bytes, text_of_bytes)),
    "string": ("string", _string),
}


def _fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise IndexError
        return data[at : at + size], at + size

    return read


def _enum(symbols: Sequence[str]) -> Read:
    return _converted(long_at, lambda index: symbols[_place(index, symbols)])


def _union(branches: Sequence[Read]) -> Read:
    by_byte = dict(zip(range(0, _ONE_BYTE, 2), branches, strict=False))

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch = by_byte.get(data[at])
        if branch is not None:
            return branch(data, at + 1)
        index, start = long_at(data, at)
        return branches[_place(index, branches)](data, start)

    return read


def _place(index: int, among: Sequence[Any]) -> int:
    if not 0 <= index < len(among):
        raise ValueError(f"number {index} of {len(among)}")
    return index


def _record(fields: Sequence[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        for name, one in fields:
            found[name], at = one(data, at)
        return found, at

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    """The number of items in a block, and where they start."""
    count, start = long_at(data, at)
    if count < 0:
        count, (_, start) = -count, long_at(data, start)  # the block's size in bytes, to skip it
    return count, start


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found = []
        count, at = _block(data, at)
        while count:
            start = at
            for _ in range(count):
                one, at = item(data, at)
                if at == start:
                    raise ValueError("an array of items without bytes, of which a few bytes can have any number")
                found.append(one)
            count, at = _block(data, at)
        return found, at

    return read


def _map(value: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        count, at = _block(data, at)
        while count:
            for _ in range(count):
                name, at = _string(data, at)
                found[name], at = value(data, at)
            count, at = _block(data, at)
        return found, at

    return read
