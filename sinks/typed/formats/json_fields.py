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
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sinks.typed.columns import Column

Fields: TypeAlias = dict[str, msgspec.Raw]
"""The text of each field, by its name."""


class DescribedFields(dict[str, msgspec.Raw]):
    """Fields whose kinds a schema says."""

    def __init__(self, fields: Fields, kinds: Mapping[str, str]) -> None:
        super().__init__(fields)
        self.kinds = kinds


Reader: TypeAlias = Callable[[bytes | None], Fields]
"""Returns the fields of a body of one format. Raises NoObject."""

_OBJECT: Final = msgspec.json.Decoder(Fields)
_ANYTHING: Final = msgspec.json.Decoder(Any)
_NULL: Final = msgspec.Raw(b"null")
EXACT: Final = 1 << 53
"""A double can represent every integer up to here."""
_LONG: Final = 1 << 63
_DEEP: Final = 100
"""How deep objects and lists may be nested: what other readers of JSON accept."""

_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.S)

REDACTED: Final = "***"
NO_BODY: Final = "no_body"
"""The reason of a misfit that has no body."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """What the table cannot take of one body: the value of `column`, or the whole body if that is None."""

    row: int
    column: str | None
    reason: str
    found: str


class NoObject(ValueError):
    """A body that is not of its format, or JSON that is no object; `reason` is one word, the text says more."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(found)
        self.reason = reason


def fields_of(body: bytes | None) -> Fields:
    """The fields of a JSON body. Raises NoObject."""
    body = given(body)
    decoded(body)
    try:
        found = _OBJECT.decode(body)
    except RecursionError:
        raise NoObject("too_deep", f"more than {_DEEP} levels") from None
    except msgspec.ValidationError as error:
        raise NoObject("no_object", str(error)) from None
    except msgspec.DecodeError as error:
        raise NoObject("not_json", str(error)) from None
    if _may_be_deep(body) and max(_depth(bytes(raw)) for raw in found.values()) >= _DEEP:
        raise NoObject("too_deep", f"more than {_DEEP} levels")
    return found


def text_of(body: bytes | None) -> Fields:
    """The only field of a body that is text; its name is empty. Raises NoObject."""
    return {"": msgspec.Raw(msgspec.json.encode(decoded(body)))}


def given(body: bytes | None) -> bytes:
    """`body`, if there is one. Raises NoObject if it is None."""
    if body is None:
        raise NoObject(NO_BODY, "null")
    return body


def decoded(body: bytes | None) -> str:
    """The text of a body. Raises NoObject if it is None or not UTF-8."""
    try:
        return given(body).decode()
    except UnicodeDecodeError as error:
        raise NoObject("not_utf8", f"byte {error.object[error.start]:#04x} at {error.start}") from None


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
    said = [f"{_text(name)}:{text.decode()}" for name, raw in left.items() if (text := bytes(raw)) != b"null"]
    return "{" + ",".join(said) + "}" if said else None


def _text(name: str) -> str:
    return msgspec.json.encode(name).decode()


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
        return "bigint" if -_LONG <= int(text) < _LONG else None
    return None if _number(text) is None else "double"


def is_integer(text: bytes) -> bool:
    """Whether a JSON number is written as an integer: 1, and not 1.0 or 1e0."""
    return len(text) < 40 and text.lstrip(b"-").isdigit()


def _number(text: bytes) -> float | None:
    """A JSON number as a double; None if it is not a number, or an integer that would lose a digit."""
    if text[:1] not in b"-0123456789":
        return None
    try:
        value = float(text)
        if is_integer(text) and int(value) != int(text):
            return None
    except (ValueError, OverflowError):
        return None
    return None if value in (float("inf"), float("-inf")) else value


def column_values(column: Column, raws: Sequence[msgspec.Raw]) -> tuple[pa.Array, list[Misfit]]:
    """The values of a column, one for each of `raws`, null for misfits; and the misfits."""
    if column.mask is not None:
        return _masked(column.mask, raws), []
    try:
        return _together(column, raws), []
    except (msgspec.MsgspecError, pa.ArrowException, OverflowError, ValueError):
        return _one_by_one(column, raws)


def _together(column: Column, raws: Sequence[msgspec.Raw]) -> pa.Array:
    """Parse all values at once. Raises some error if one does not fit."""
    if column.kind == "json":
        return pa.array((None if text == b"null" else text.decode() for text in map(bytes, raws)), pa.string())
    if column.kind not in _READERS:
        raise ValueError(column.kind)  # values of this kind are parsed one by one
    values = _READERS[column.kind].decode(b"[" + b",".join(raws) + b"]")
    if column.kind == "timestamp_ms":
        return pc.multiply_checked(pa.array(values, pa.int64()), 1000).cast(column.type)
    made = pa.array(values, column.type)
    if column.kind == "double" and len(made) > made.null_count and pc.max(pc.abs(made)).as_py() >= EXACT:
        raise OverflowError  # an integer may have lost a digit
    return made


_READERS: Final[dict[str, msgspec.json.Decoder[list[Any]]]] = {
    "boolean": msgspec.json.Decoder(list[bool | None]),
    "int": msgspec.json.Decoder(list[int | None]),
    "bigint": msgspec.json.Decoder(list[int | None]),
    "double": msgspec.json.Decoder(list[float | None]),
    "string": msgspec.json.Decoder(list[str | None]),
    "timestamp_ms": msgspec.json.Decoder(list[int | None]),
    "date": msgspec.json.Decoder(list[date | None]),
    "timestamp": msgspec.json.Decoder(list[Annotated[datetime, msgspec.Meta(tz=True)] | None]),
}
"""Decoders for kinds that are parsed a column at a time."""


def _one_by_one(column: Column, raws: Sequence[msgspec.Raw]) -> tuple[pa.Array, list[Misfit]]:
    values: list[Any] = []
    misfits: list[Misfit] = []
    for row, raw in enumerate(raws):
        text = bytes(raw)
        value = None
        if text != b"null":
            try:
                value = value_of(column.kind, text)
                pa.scalar(value, column.type)
            except (msgspec.MsgspecError, pa.ArrowException, ArithmeticError, ValueError, TypeError):
                value = None
                misfits.append(Misfit(row, column.name, f"not_{column.kind}", text.decode()))
        values.append(value)
    return pa.array(values, column.type), misfits


def value_of(kind: str, text: bytes) -> Any:
    """The value of one JSON text. Raises ValueError, TypeError, ArithmeticError or an error of msgspec for a misfit."""
    if kind.startswith("decimal"):
        return _decimal(kind, text)
    return _VALUES[kind](text)


def _decimal(kind: str, text: bytes) -> Decimal:
    digits = _ANYTHING.decode(text) if text[:1] == b'"' else text.decode()
    if not isinstance(digits, str) or digits != digits.strip():
        raise ValueError(kind)
    value = Decimal(digits)
    if not value.is_finite():
        raise ValueError(kind)
    return value


def _integer(text: bytes) -> int:
    if not is_integer(text):
        raise ValueError(text)
    return int(text)


def _double(text: bytes) -> float:
    value = _number(text)
    if value is None:
        raise ValueError(text)
    return value


def _instant(text: bytes) -> datetime:
    value = msgspec.json.decode(text, type=datetime)
    if value.tzinfo is None:
        raise ValueError("a time without a zone")
    return value


_VALUES: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "boolean": lambda text: msgspec.json.decode(text, type=bool),
    "int": _integer,
    "bigint": _integer,
    "double": _double,
    "string": lambda text: msgspec.json.decode(text, type=str),
    "timestamp": _instant,
    "timestamp_ms": lambda text: _integer(text) * 1000,
    "date": lambda text: msgspec.json.decode(text, type=date),
    "json": lambda text: text.decode(),
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
    plain = msgspec.json.decode(text, type=str).encode() if text[:1] == b'"' else text
    return hashlib.sha256(plain).hexdigest()


def concealed(mask: str, raw: msgspec.Raw) -> msgspec.Raw:
    """A value masked with `mask`, as JSON text."""
    text = bytes(raw)
    if mask == "null" or text == b"null":
        return _NULL
    return msgspec.Raw(msgspec.json.encode(_mask(mask, text)))


def taken_apart(
    bodies: Sequence[bytes | None], read: Reader = fields_of
) -> tuple[list[Fields], list[int], list[Misfit]]:
    """The fields of the bodies that could be read, their rows, and a misfit for each other body."""
    objects: list[Fields] = []
    rows: list[int] = []
    misfits: list[Misfit] = []
    for row, body in enumerate(bodies):
        try:
            objects.append(read(body))
            rows.append(row)
        except NoObject as error:
            misfits.append(Misfit(row, None, error.reason, str(error)))
    return objects, rows, misfits


def texts_of(objects: Sequence[Fields], column: Column) -> list[msgspec.Raw]:
    """Remove the column's field from each object and return its text; null if it is missing."""
    name = column.field
    return [one.pop(name, _NULL) for one in objects]


def each_left(objects: Sequence[Fields]) -> Iterator[tuple[int, str, str]]:
    """Every field that is still there and not null: its row, its name, and the kind of column for its value."""
    for row, one in enumerate(objects):
        said = one.kinds if isinstance(one, DescribedFields) else {}
        for name, raw in one.items():
            kind = kind_of(raw) if name not in said or bytes(raw) == b"null" else said[name]
            if kind is not None:
                yield row, name, kind
