"""Turn bodies that are JSON objects into columns. Pure: bytes in, Arrow arrays out.

A body is split once, into the text of each of its fields; the texts of a column are then parsed together, as one JSON
list. Only if one of them does not fit is each parsed by itself. So nothing is parsed twice in the usual case, and a
field that has no column keeps its exact text.

JSON is RFC 8259, which has neither NaN nor comments; a body is UTF-8 without a byte order mark. If an object has a name
twice, the last one counts, as in Python. A string with half of a surrogate pair is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sinks.typed.columns import Column
from sinks.typed.formats.scalars import (
    EXACT,
    GREATEST_US,
    LEAST_US,
    day_of,
    decimal_of,
    double_of,
    in_years,
    instant_us,
    is_integer,
    long_of,
)

_T = TypeVar("_T")
Fields: TypeAlias = dict[str, msgspec.Raw]
"""The text of each field, by its name."""


class DescribedFields(dict[str, msgspec.Raw]):
    """Fields whose kinds a schema says."""

    def __init__(self, fields: Fields, kinds: Mapping[str, str]) -> None:
        super().__init__(fields)
        self.kinds = kinds


Reader: TypeAlias = Callable[[bytes | None], Fields]
"""Returns the fields of a body of one format. Raises NoObject."""
AnyReader: TypeAlias = Reader | Callable[[bytes | None], Sequence[Fields]]
"""The same, or one of bodies that have any number of rows."""

_OBJECT: Final = msgspec.json.Decoder(Fields)
_NULL: Final = msgspec.Raw(b"null")
_MARK: Final = "\ufeff"
"""A byte order mark: it says how the text is encoded, and is no part of it."""
_DEEP: Final = 100
"""How deep objects and lists may be nested: what other readers of JSON accept."""

# A string that nothing closes goes to the end: otherwise each quote in it would be tried again.
_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.S)

REDACTED: Final = "***"
NO_BODY: Final = "no_body"
"""The reason of a misfit that has no body."""
UNKNOWN: Final = "unknown fields"
"""The field with the parts of a message that its schema does not name. No column can have this name."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """What the table cannot take of one body: the value of `column`, or the whole body if that is None."""

    row: int
    column: str | None
    reason: str
    found: str


class NoObject(ValueError):
    """A body that is not of its format, or JSON that is no object; `reason` is one word, the text says more.

    `beside` are the objects of a body of which only a part cannot be read.
    """

    def __init__(self, reason: str, found: str, beside: Sequence[Fields] = ()) -> None:
        super().__init__(found)
        self.reason = reason
        self.beside = beside


def fields_of(body: bytes | None) -> Fields:
    """The fields of a JSON body. Raises NoObject."""
    found = decoded_by(_OBJECT, body, "no_object")
    not_too_deep(given(body))
    return found


def decoded_by(decoder: msgspec.json.Decoder[_T], body: bytes | None, reason: str) -> _T:
    """What `decoder` reads in a JSON body. Raises NoObject, with `reason` if the decoder reads something else."""
    body = given(body)
    decoded(body)
    try:
        return decoder.decode(body)
    except RecursionError:
        raise NoObject("too_deep", f"more than {_DEEP} levels") from None
    except msgspec.ValidationError as error:
        raise NoObject(reason, str(error)) from None
    except msgspec.DecodeError as error:
        raise NoObject("not_json", _no_json(body) or str(error)) from None


def text_of(body: bytes | None) -> Fields:
    """The only field of a body that is text; its name is empty. Raises NoObject."""
    return {"": msgspec.Raw(msgspec.json.encode(decoded(body)))}


def given(body: bytes | None) -> bytes:
    """`body`, if there is one. Raises NoObject if it is None."""
    if body is None:
        raise NoObject(NO_BODY, "null")
    return body


def decoded(body: bytes | None) -> str:
    """The text of a body, without a byte order mark before it. Raises NoObject if it is None or not UTF-8."""
    try:
        return given(body).decode().removeprefix(_MARK)
    except UnicodeDecodeError as error:
        raise NoObject("not_utf8", f"byte {error.object[error.start]:#04x} at {error.start}") from None


def _no_json(body: bytes) -> str | None:
    """What is wrong with a body, where the parser of JSON would say it in misleading words."""
    if body.startswith(_MARK.encode()):
        return "a byte order mark, with which JSON must not begin"
    if not body.strip():
        return "nothing but blanks" if body else "an empty body"
    return None


def not_too_deep(text: bytes) -> bytes:
    """`text`, JSON or not, if brackets are nested in it as deep as in a body at most. Raises NoObject."""
    if _may_be_deep(text) and _depth(text) > _DEEP:
        raise NoObject("too_deep", f"more than {_DEEP} levels")
    return text


def _may_be_deep(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") > _DEEP


def _depth(text: bytes) -> int:
    """How deep lists and objects are nested in a JSON text."""
    deepest = level = 0
    for token in _TOKENS.finditer(text):
        if token[0] in (b"[", b"{"):
            level += 1
            deepest = max(deepest, level)
        elif token[0] in (b"]", b"}"):
            level -= 1
    return deepest


def rest_of(left: Fields) -> str | None:
    """The fields that have no column, as one JSON object; None if there are none. A null counts as a missing field."""
    said = {name: raw for name, raw in left.items() if bytes(raw) != b"null"}
    return bytes(json_of(said)).decode() if said else None


def json_of(fields: Fields) -> msgspec.Raw:
    """The object with these fields."""
    return msgspec.Raw(b"{%b}" % b",".join(b"%b:%b" % (msgspec.json.encode(name), raw) for name, raw in fields.items()))


def kind_of(raw: msgspec.Raw) -> str | None:
    """The kind of column for a value; None for null, and for a number that is too large for any kind."""
    text = bytes(raw)
    match text[:1]:
        case b'"':
            return "string"
        case b"{" | b"[":
            return "json"
        case b"t" | b"f":
            return "boolean"
        case b"n":
            return None
    if is_integer(text):
        return None if long_of(text) is None else "bigint"
    return None if double_of(text) is None else "double"


def kind_with_times(raw: msgspec.Raw) -> str | None:
    """As `kind_of`, and ``timestamp`` for a text that such a column takes."""
    kind = kind_of(raw)
    return "timestamp" if kind == "string" and _VALUES["timestamp"](bytes(raw)) is not None else kind


def column_values(column: Column, raws: Sequence[msgspec.Raw]) -> tuple[pa.Array, list[Misfit]]:
    """The values of a column, one for each of `raws`, null for misfits; and the misfits."""
    if column.mask is not None:
        return _masked(column.mask, raws), []
    if column.kind == "json":
        return pa.array((None if text == b"null" else text.decode() for text in map(bytes, raws)), column.type), []
    if column.kind in _READERS:
        with suppress(msgspec.MsgspecError, pa.ArrowException, OverflowError):
            return _together(column, raws), []
    return _one_by_one(column, raws)


def _together(column: Column, raws: Sequence[msgspec.Raw]) -> pa.Array:
    """Parse all values at once. Raises an error of msgspec or Arrow, or OverflowError, if one does not fit."""
    values = _READERS[column.kind].decode(b"[" + b",".join(raws) + b"]")
    if column.kind == "timestamp_ms":
        micros = pc.multiply_checked(pa.array(values, pa.int64()), 1000)
        return _within(micros, LEAST_US, GREATEST_US).cast(column.type)
    made = pa.array(values, column.type)
    # a greater integer may have lost a digit
    return _within(made, 1 - EXACT, EXACT - 1) if column.kind == "double" else made


def _within(values: pa.Array, least: int, greatest: int) -> pa.Array:
    """`values`, none of which is below `least` or above `greatest`. Raises OverflowError."""
    found = pc.min_max(values).as_py()
    if found["min"] is not None and not least <= found["min"] <= found["max"] <= greatest:
        raise OverflowError
    return values


_READERS: Final[dict[str, msgspec.json.Decoder[list[Any]]]] = {
    "boolean": msgspec.json.Decoder(list[bool | None]),
    "int": msgspec.json.Decoder(list[int | None]),
    "bigint": msgspec.json.Decoder(list[int | None]),
    "double": msgspec.json.Decoder(list[float | None]),
    "string": msgspec.json.Decoder(list[str | None]),
    "timestamp_ms": msgspec.json.Decoder(list[int | None]),
}
"""Decoders for kinds that are parsed a column at a time."""


def _one_by_one(column: Column, raws: Sequence[msgspec.Raw]) -> tuple[pa.Array, list[Misfit]]:
    values: list[Any] = []
    misfits: list[Misfit] = []
    value_of = _value_reader(column)
    for row, raw in enumerate(raws):
        text = bytes(raw)
        value = None if text == b"null" else value_of(text)
        if value is None and text != b"null":
            misfits.append(Misfit(row, column.name, f"not_{column.kind}", text.decode()))
        values.append(value)
    return pa.array(values, column.type), misfits


def _value_reader(column: Column) -> Callable[[bytes], Any]:
    """A function that returns the value of one JSON text, which the column can have; None for a misfit."""
    if not column.kind.startswith("decimal"):
        return _VALUES[column.kind]
    precision, scale = column.type.precision, column.type.scale

    def decimal(text: bytes) -> Decimal | None:
        said = string_of(text)
        return decimal_of(text if said is None else said.encode(), precision, scale)

    return decimal


def string_of(text: bytes) -> str | None:
    """The value of a JSON string; None for any other value."""
    return msgspec.json.decode(text, type=str) if text[:1] == b'"' else None


def _int(text: bytes) -> int | None:
    value = long_of(text)
    return value if value is not None and -_INT <= value < _INT else None


def _millis(text: bytes) -> int | None:
    value = long_of(text)
    return None if value is None else in_years(value * 1000)


_INT: Final = 1 << 31
_BOOLEANS: Final = {b"true": True, b"false": False}
_VALUES: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "boolean": _BOOLEANS.get,
    "int": _int,
    "bigint": long_of,
    "double": double_of,
    "string": string_of,
    "timestamp": lambda text: instant_us(string_of(text) or ""),
    "timestamp_ms": _millis,
    "date": lambda text: day_of(string_of(text) or ""),
}


def _masked(mask: str, raws: Sequence[msgspec.Raw]) -> pa.Array:
    """The masked values: a mask is applied to a string without its quotes, or to the text of any other value."""
    if mask == "null":
        return pa.nulls(len(raws), pa.string())
    texts = map(bytes, raws)
    return pa.array((None if text == b"null" else _mask(mask, text) for text in texts), pa.string())


def _mask(mask: str, text: bytes) -> str:
    if mask == "redact":
        return REDACTED
    said = string_of(text)
    return hashlib.sha256(text if said is None else said.encode()).hexdigest()


def concealed(mask: str, raw: msgspec.Raw) -> msgspec.Raw:
    text = bytes(raw)
    if mask == "null" or text == b"null":
        return _NULL
    return msgspec.Raw(msgspec.json.encode(_mask(mask, text)))


def taken_apart(
    bodies: Sequence[bytes | None], read: AnyReader = fields_of
) -> tuple[list[Fields], list[int], list[Misfit]]:
    """The objects in the bodies that could be read, the number of each one's body, and a misfit for each other body."""
    objects: list[Fields] = []
    rows: list[int] = []
    misfits: list[Misfit] = []
    several: Sequence[Fields]
    for row, body in enumerate(bodies):
        try:
            found = read(body)
            several = (found,) if isinstance(found, dict) else found
        except NoObject as error:
            several = error.beside
            misfits.append(Misfit(row, None, error.reason, str(error)))
        objects += several
        rows += [row] * len(several)
    return objects, rows, misfits


def texts_of(objects: Sequence[Fields], column: Column) -> list[msgspec.Raw]:
    """Remove the column's field from each object and return its text; null if it is missing."""
    name = column.field
    return [one.pop(name, _NULL) for one in objects]


def each_left(
    objects: Sequence[Fields], kind_of: Callable[[msgspec.Raw], str | None] = kind_of
) -> Iterator[tuple[int, str, str]]:
    """Every field that is still there and not null: its row, its name, and the kind of column for its value."""
    for row, one in enumerate(objects):
        said = one.kinds if isinstance(one, DescribedFields) else {}
        for name, raw in one.items():
            kind = kind_of(raw) if name not in said or bytes(raw) == b"null" else said[name]
            if kind is not None:
                yield row, name, kind
