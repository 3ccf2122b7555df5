"""The kinds of columns: their words, their parts, their Arrow types. Pure.

There are few scalar kinds, which every engine reads (`sinks/typed/columns.py` says what a body gives each). Others have
parts, which are kinds again, in the words of Spark's DDL:

    struct<sku:string,amount:decimal(12,2)>    an object with these fields; names as columns have them, or in backticks
    array<struct<…>>                           a list
    map<string,bigint>                         an object with any names

A kind is a text, and equal kinds are equal texts: without blanks, in small letters but for names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar

import pyarrow as pa

from sources.errors import ConfigurationError
from sources.records import TIMESTAMP

T = TypeVar("T")
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_PLAIN: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": TIMESTAMP,
    "timestamp_ms": TIMESTAMP,
    "date": pa.date32(),
    "json": pa.string(),
}
JSON: Final = "json"
"""Anything, as its text: in place of every type that has no other kind."""
TEXTS: Final = ("string", JSON)
KINDS: Final = (*_PLAIN, "decimal(p,s)", "struct<name:type,...>", "array<type>", "map<string,type>")
MOST_DIGITS: Final = 38
MOST_CHARACTERS: Final = 255
"""How long a column's name may be. Each name is in the schema, which every commit of new columns repeats."""
MOST_LEVELS: Final = 10
"""How deep structs, arrays and maps may be nested in a column."""
MOST_PARTS: Final = 500
"""How many kinds a column may be made of: each scalar in it is a column of its own in a file."""
# Delta takes none of these in a name without column mapping, which delta-rs and Polars do not read.
_NO_NAME: Final = re.compile(r"[ ,;{}()\n\t=]|^$")

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+(?:\(\s*\d+\s*,\s*\d+\s*\))?|[<>:,])\s*")
_NESTED: Final = re.compile(r"\s*(?:struct|array|map)\s*<", re.I)
_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Struct(Generic[T]):
    fields: tuple[tuple[str, T], ...]


@dataclass(frozen=True, slots=True)
class Array(Generic[T]):
    item: T


@dataclass(frozen=True, slots=True)
class Map(Generic[T]):
    value: T


Parts: TypeAlias = Struct[T] | Array[T] | Map[T]
"""The parts of a kind, or of a type in some schema; those of a struct with their names."""
Opened: TypeAlias = str | tuple[Hashable, Parts[T]]
"""A scalar kind, or what tells a type from the others of its schema, and its parts."""


def is_name(text: str) -> bool:
    return len(text) <= MOST_CHARACTERS and _NO_NAME.search(text) is None


def is_nested(kind: str) -> bool:
    return _NESTED.match(kind) is not None


@lru_cache(maxsize=4096)
def parts_of(kind: str) -> Parts[str] | None:
    """The parts of a kind; None of a scalar. Raises ConfigurationError if there is no such kind."""
    return _Parser(kind).parts if is_nested(kind) else None


def kind_of_parts(parts: Parts[str]) -> str:
    match parts:
        case Struct(fields):
            return f"struct<{','.join(f'{quoted(name)}:{kind}' for name, kind in fields)}>"
        case Array(item):
            return f"array<{item}>"
        case Map(value):
            return f"map<string,{value}>"


def normal_kind(kind: str) -> str:
    """The kind as all others write it. Raises ConfigurationError if there is no such kind."""
    parts = parts_of(kind)
    if parts is not None:
        kind = kind_of_parts(parts)
    arrow_type(kind)
    return kind


def quoted(name: str) -> str:
    """The name as Spark's SQL takes it: in backticks if it has other signs than letters, digits and underscores."""
    return name if _BARE.fullmatch(name) else f"`{name.replace('`', '``')}`"


@lru_cache(maxsize=4096)
def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a kind. Raises ConfigurationError if there is no such kind."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    match parts_of(kind):
        case Struct(fields):
            return pa.struct([pa.field(name, arrow_type(one)) for name, one in fields])
        case Array(item):
            return pa.list_(arrow_type(item))
        case Map(value):
            return pa.map_(pa.string(), arrow_type(value))
    found = _DECIMAL.fullmatch(kind)
    if found is not None and 0 <= int(found[2]) <= int(found[1]) <= MOST_DIGITS and int(found[1]):
        return pa.decimal128(int(found[1]), int(found[2]))
    raise _no_kind(kind)


def _no_kind(kind: str, expected: str = f"one of {', '.join(KINDS)}") -> ConfigurationError:
    return ConfigurationError("a column has no such type", expected=expected, found=kind)


class _Parser:
    """Reads a kind that has parts. Raises ConfigurationError."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._start = 0
        self._kinds = 0
        self.parts = self._nested(self._next().lower(), 1)
        if self._at != len(text):
            self._start = self._at
            raise self._wrong("nothing more")

    def _wrong(self, expected: str) -> ConfigurationError:
        return _no_kind(self._text, f"{expected}, at character {self._start + 1}")

    def _next(self, expected: str = "") -> str:
        self._start = self._at
        found = _TOKEN.match(self._text, self._at)
        if found is None or (expected and found[1] != expected):
            raise self._wrong(expected or "a type or a name")
        self._at = found.end()
        return found[1]

    def _has(self, token: str) -> bool:
        found = _TOKEN.match(self._text, self._at)
        if found is not None and found[1] == token:
            self._at = found.end()
            return True
        return False

    def _kind(self, level: int) -> str:
        self._kinds += 1
        if self._kinds > MOST_PARTS:
            raise _no_kind(self._text, f"at most {MOST_PARTS} types in one")
        word = re.sub(r"\s", "", self._next().lower())
        if word not in ("struct", "array", "map"):
            if word not in _PLAIN and not _DECIMAL.fullmatch(word):
                raise self._wrong(f"one of {', '.join(KINDS)}")
            arrow_type(word)
            return word
        if level > MOST_LEVELS:
            raise _no_kind(self._text, f"at most {MOST_LEVELS} levels")
        return kind_of_parts(self._nested(word, level))

    def _nested(self, word: str, level: int) -> Parts[str]:
        self._next("<")
        found: Parts[str]
        if word == "array":
            found = Array(self._kind(level + 1))
        elif word == "map":
            if self._next().lower() != "string":
                raise self._wrong("string, which names in JSON are")
            self._next(",")
            found = Map(self._kind(level + 1))
        else:
            found = Struct(tuple(self._fields(level)))
            names = [name.casefold() for name, _ in found.fields]
            if len({*names}) < len(names):
                raise self._wrong("names that differ in more than upper and lower case")
        self._next(">")
        return found

    def _fields(self, level: int) -> Iterator[tuple[str, str]]:
        while True:
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if not is_name(name) or name in "<>:,":
                raise self._wrong("a name that a column can have")
            self._has(":")
            yield name, self._kind(level + 1)
            if not self._has(","):
                return


def roomy_kind(kind: str) -> str:
    """The kind of a column that is found: a later schema may have longer integers."""
    match parts_of(kind):
        case Struct(fields):
            return kind_of_parts(Struct(tuple((name, roomy_kind(one)) for name, one in fields)))
        case Array(item):
            return kind_of_parts(Array(roomy_kind(item)))
        case Map(value):
            return kind_of_parts(Map(roomy_kind(value)))
    return "bigint" if kind == "int" else kind


def kind_of_schema(type_: T, opened: Callable[[T], Opened[T]]) -> str:
    """The kind of a type in some schema. It is JSON text where a type contains itself, at more than `MOST_LEVELS`,
    where no column can have the names of its fields, and as a whole if it is too large."""
    room = MOST_PARTS

    def kind(one: T, within: tuple[Hashable, ...]) -> str:
        nonlocal room
        room -= 1
        found = opened(one)
        if isinstance(found, str) or room < 0:
            return JSON if room < 0 else str(found)
        itself, parts = found
        if itself in within or len(within) == MOST_LEVELS:
            return JSON
        below = (*within, itself)
        match parts:
            case Array(item):
                return kind_of_parts(Array(kind(item, below)))
            case Map(value):
                return kind_of_parts(Map(kind(value, below)))
        names = {name.casefold() for name, _ in parts.fields if is_name(name)}
        if not names or len(names) < len(parts.fields):
            return JSON
        return kind_of_parts(Struct(tuple((name, kind(below_it, below)) for name, below_it in parts.fields)))

    found = kind(type_, ())
    return JSON if room < 0 else found


def leaves(kind: str) -> Iterator[tuple[str, str]]:
    """The scalars of a kind: where each is in a Parquet file, from its column on, and its kind."""
    match parts_of(kind):
        case Struct(fields):
            for name, one in fields:
                yield from ((f".{name}{below}", leaf) for below, leaf in leaves(one))
        case Array(item):
            yield from ((f".list.element{below}", leaf) for below, leaf in leaves(item))
        case Map(value):
            yield ".key_value.key", "string"
            yield from ((f".key_value.value{below}", leaf) for below, leaf in leaves(value))
        case None:
            yield "", kind


def grown_kind(one: str, other: str) -> str:
    """`one` with the fields of structs that only `other` has, at their ends; as it is if it would become too large.

    Files that lack such a field read as null, so none is written anew. A struct inside a map does not grow: delta-rs'
    SQL cannot read both. A scalar stays what it is.
    """
    kind = _grown(one, other)
    try:
        arrow_type(kind)
    except ConfigurationError:
        return one
    return kind


def _grown(one: str, other: str) -> str:
    match parts_of(one), parts_of(other):
        case Struct(fields), Struct(others):
            found = dict(others)
            kept = [(name, _grown(kind, found.get(name, kind))) for name, kind in fields]
            taken = {name.casefold() for name, _ in fields}
            return kind_of_parts(Struct((*kept, *(of for of in others if of[0].casefold() not in taken))))
        case Array(item), Array(other_item):
            return kind_of_parts(Array(_grown(item, other_item)))
    return one


def joined_kind(one: str, other: str) -> str | None:
    """The kind that holds every value of both, of integers and decimals; None if none does, or one is of others.

    Of kinds with parts see `grown_kind`.
    """
    if is_nested(one) and is_nested(other):
        return grown_kind(one, other)
    digits = [_digits(kind) for kind in (one, other)]
    if None in digits or one == other:
        return one if one == other else None
    (before, behind), (other_before, other_behind) = (of for of in digits if of is not None)
    if not _is_decimal(one) and not _is_decimal(other):
        return "bigint"
    scale = max(behind, other_behind)
    precision = max(before, other_before) + scale
    return f"decimal({precision},{scale})" if precision <= MOST_DIGITS else None


def _is_decimal(kind: str) -> bool:
    return kind.startswith("decimal")


def _digits(kind: str) -> tuple[int, int] | None:
    """How many digits a number of this kind has before its point and behind it; None if it is not exact."""
    found = _DECIMAL.fullmatch(kind)
    if found is None:
        return {"int": (10, 0), "bigint": (19, 0)}.get(kind)
    return int(found[1]) - int(found[2]), int(found[2])
