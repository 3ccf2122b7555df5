"""Bodies that are JSON objects -> columns. Pure: bytes in, Arrow arrays out.

A body is taken apart once, into the text of each of its fields; the texts of a column are then read together, as one
JSON list. Where one of them does not fit, each is looked at by itself. So nothing is read twice in the usual case, and
a field that has no column keeps the very text that it had.

JSON is RFC 8259, which has neither NaN nor comments; a body is UTF-8 without a mark at its beginning. Of a name that an
object has twice the last one counts, as in Python. A string with half of a surrogate pair is no text, so no JSON here.
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


class Described(dict[str, msgspec.Raw]):
    """Fields of which a schema says the kind."""

    def __init__(self, fields: Fields, kinds: Mapping[str, str]) -> None:
        super().__init__(fields)
        self.kinds = kinds


Reader: TypeAlias = Callable[[bytes | None], Fields]
"""Of a body, of one format. Raises NoObject."""

_OBJECT: Final = msgspec.json.Decoder(Fields)
_ANYTHING: Final = msgspec.json.Decoder(Any)
_NULL: Final = msgspec.Raw(b"null")
EXACT: Final = 1 << 53
"""Up to here a double has every integer."""
_LONG: Final = 1 << 63
_DEEP: Final = 100
"""Objects and lists inside each other, at most: what other readers of JSON take."""

_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.S)

REDACTED: Final = "***"
NO_BODY: Final = "no_body"
"""The reason of a misfit that has none."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """What one body has that the table cannot take: all of it where `column` is None."""

    row: int
    column: str | None
    reason: str
    found: str


class NoObject(ValueError):
    """A body that is none of its format, of JSON no object; `reason` is one word, the text says more."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(found)
        self.reason = reason


def fields_of(body: bytes | None) -> Fields:
    """The fields of a body. Raises NoObject."""
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
    """Of a body that is text the one field that it has, without a name. Raises NoObject."""
    return {"": msgspec.Raw(msgspec.json.encode(decoded(body)))}


def given(body: bytes | None) -> bytes:
    """A body that is there. Raises NoObject."""
    if body is None:
        raise NoObject(NO_BODY, "null")
    return body


def decoded(body: bytes | None) -> str:
    """The text of a body. Raises NoObject."""
    try:
        return given(body).decode()
    except UnicodeDecodeError as error:
        raise NoObject("not_utf8", f"byte {error.object[error.start]:#04x} at {error.start}") from None


def _may_be_deep(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") > _DEEP


def _depth(text: bytes) -> int:
    """How deep lists and objects lie in each other in a JSON text."""
    deepest = level = 0
    for token in _TOKENS.finditer(text):
        if token[0] in (b"[", b"{"):
            level += 1
            deepest = max(deepest, level)
        elif token[0] in (b"]", b"}"):
            level -= 1
    return deepest


def rest_of(left: Fields) -> str | None:
    """The fields that have no column, as one JSON object; None without any. Null says no more than a missing field."""
    said = [f"{_text(name)}:{text.decode()}" for name, raw in left.items() if (text := bytes(raw)) != b"null"]
    return "{" + ",".join(said) + "}" if said else None


def _text(name: str) -> str:
    return msgspec.json.encode(name).decode()


def kind_of(raw: msgspec.Raw) -> str | None:
    """The kind that a value asks for; None of null, and of a number that is too large for any."""
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
    """Whether a JSON number is written as one: 1, and not 1.0 or 1e0."""
    return len(text) < 40 and text.lstrip(b"-").isdigit()


def _number(text: bytes) -> float | None:
    """A JSON number as a double; None where it is none, or an integer that would lose a digit."""
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
    """The values of a column, a row for each of `raws`, null where one is a misfit."""
    if column.mask is not None:
        return _masked(column.mask, raws), []
    try:
        return _together(column, raws), []
    except (msgspec.MsgspecError, pa.ArrowException, OverflowError, ValueError):
        return _one_by_one(column, raws)


def _together(column: Column, raws: Sequence[msgspec.Raw]) -> pa.Array:
    """All at once. Raises whatever one that does not fit makes of it."""
    if column.kind == "json":
        return pa.array((None if text == b"null" else text.decode() for text in map(bytes, raws)), pa.string())
    if column.kind not in _READERS:
        raise ValueError(column.kind)  # each has to be looked at
    values = _READERS[column.kind].decode(b"[" + b",".join(raws) + b"]")
    if column.kind == "timestamp_ms":
        return pc.multiply_checked(pa.array(values, pa.int64()), 1000).cast(column.type)
    made = pa.array(values, column.type)
    if column.kind == "double" and len(made) > made.null_count and pc.max(pc.abs(made)).as_py() >= EXACT:
        raise OverflowError  # an integer may have lost a digit on its way
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
"""Of kinds that are read a column at a time."""


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
    """One value out of its JSON text. Raises ValueError, TypeError, ArithmeticError or msgspec's errors: a misfit."""
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
    """What stands for each value: of a string without its quotes, of anything else its text."""
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
    """What stands for a value that is masked, as JSON text."""
    text = bytes(raw)
    if mask == "null" or text == b"null":
        return _NULL
    return msgspec.Raw(msgspec.json.encode(_mask(mask, text)))


def taken_apart(
    bodies: Sequence[bytes | None], read: Reader = fields_of
) -> tuple[list[Fields], list[int], list[Misfit]]:
    """The fields of the bodies that have any, their rows, and why the others have none."""
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
    """Takes the column's field out of each object; null where it is missing."""
    name = column.field
    return [one.pop(name, _NULL) for one in objects]


def each_left(objects: Sequence[Fields]) -> Iterator[tuple[int, str, str]]:
    """Every field that is still there and not null: row, name, the kind of column that its value asks for."""
    for row, one in enumerate(objects):
        said = one.kinds if isinstance(one, Described) else {}
        for name, raw in one.items():
            kind = kind_of(raw) if name not in said or bytes(raw) == b"null" else said[name]
            if kind is not None:
                yield row, name, kind
