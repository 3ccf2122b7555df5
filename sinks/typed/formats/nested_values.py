"""Values of columns that have parts: structs, arrays, maps. Pure: texts in, Arrow arrays out.

A value is taken apart into the texts of its parts, and those of one part are parsed together, as the texts of a column
are (`sinks/typed/formats/json_fields.py`). So what holds for a column holds for each part of one: a part that does not
fit is null, and a misfit that names it by its path, `items.amount`; of a map's values it is `prices.*`. Of the elements
of one list or map the first misfit of a path stands for all. A list keeps the places of its elements, and a map the
order of its names.

What a struct has no field for is left, as JSON in which it stands where it stood: ``{"vip":true}`` of a struct, and
``[null,{"colour":"red"}]`` of a list in whose second element there was more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
import pyarrow as pa

from sinks.typed.columns import Column
from sinks.typed.formats.json_fields import Fields, Misfit, column_values, rest_of, texts_of
from sinks.typed.kinds import Array, Map, Struct, parts_of

_T = TypeVar("_T")
_NULL: Final = msgspec.Raw(b"null")
Left: TypeAlias = dict[int, msgspec.Raw]
"""What is left of a value, by its row, where anything is."""
Values: TypeAlias = tuple[pa.Array, list[Misfit], Left]

_OBJECTS: Final = msgspec.json.Decoder(list[Fields | None])
_LISTS: Final = msgspec.json.Decoder(list[list[msgspec.Raw] | None])


def column_of(objects: Sequence[Fields], column: Column) -> tuple[list[msgspec.Raw], pa.Array, list[Misfit]]:
    """Take a column's field out of `objects`, but for what is left of it: the texts, the values, the misfits."""
    raws = texts_of(objects, column)
    array, misfits, left = values_of(column, raws)
    for row, raw in left.items():
        objects[row][column.field] = raw
    return raws, array, misfits


def values_of(column: Column, raws: Sequence[msgspec.Raw]) -> Values:
    """The values of a column, one for each of `raws`, null for misfits; the misfits; and what is left of the values."""
    parts = None if column.mask is not None else parts_of(column.kind)
    match parts:
        case Struct(fields):
            return _structs(column, fields, raws)
        case Array(item):
            return _arrays(column, item, raws)
        case Map(value):
            return _maps(column, value, raws)
    return *column_values(column, raws), {}


def _structs(column: Column, fields: Sequence[tuple[str, str]], raws: Sequence[msgspec.Raw]) -> Values:
    objects, misfits = _decoded(_OBJECTS, column, "not_struct", raws)
    arrays: list[pa.Array] = []
    kept: list[tuple[str, Left]] = []
    for name, kind in fields:
        texts = [_NULL if one is None else one.pop(name, _NULL) for one in objects]
        array, wrong, left = values_of(Column(f"{column.name}.{name}", name, kind), texts)
        arrays.append(array)
        misfits += wrong
        kept.append((name, left))
    for name, left in kept:
        for row, raw in left.items():
            cast("Fields", objects[row])[name] = raw
    others = ((row, rest_of(one)) for row, one in enumerate(objects) if one)
    made = pa.StructArray.from_arrays(arrays, fields=list(column.type), mask=_nulls(objects))
    return made, misfits, {row: msgspec.Raw(text.encode()) for row, text in others if text is not None}


def _arrays(column: Column, item: str, raws: Sequence[msgspec.Raw]) -> Values:
    lists, misfits = _decoded(_LISTS, column, "not_array", raws)
    flat = list(chain.from_iterable(one or () for one in lists))
    items, wrong, left = values_of(Column(column.name, "", item), flat)
    made = pa.ListArray.from_arrays(_offsets(lists), items, type=column.type, mask=_nulls(lists))
    rows = _rows(lists) if wrong or left else []
    kept: dict[int, list[bytes]] = {}
    starts = _offsets(lists).to_pylist() if left else []
    for number, raw in left.items():
        texts = kept.setdefault(rows[number], [])
        texts += [b"null"] * (number - starts[rows[number]] - len(texts))
        texts.append(bytes(raw))
    return made, misfits + _firsts(wrong, rows), {row: _raw(b"[%b]", texts) for row, texts in kept.items()}


def _maps(column: Column, value: str, raws: Sequence[msgspec.Raw]) -> Values:
    objects, misfits = _decoded(_OBJECTS, column, "not_map", raws)
    names = list(chain.from_iterable(one or () for one in objects))
    flat = list(chain.from_iterable(one.values() for one in objects if one is not None))
    values, wrong, left = values_of(Column(f"{column.name}.*", "", value), flat)
    keys = pa.array(names, pa.string())
    made = pa.MapArray.from_arrays(_offsets(objects), keys, values, type=column.type, mask=_nulls(objects))
    rows = _rows(objects) if wrong or left else []
    kept: dict[int, list[bytes]] = {}
    for number, raw in left.items():
        kept.setdefault(rows[number], []).append(msgspec.json.encode(names[number]) + b":" + bytes(raw))
    return made, misfits + _firsts(wrong, rows), {row: _raw(b"{%b}", texts) for row, texts in kept.items()}


def _decoded(
    together: msgspec.json.Decoder[list[_T | None]], column: Column, reason: str, raws: Sequence[msgspec.Raw]
) -> tuple[list[_T | None], list[Misfit]]:
    """The parts of each value, None of a null and of a misfit."""
    try:
        return together.decode(b"[" + b",".join(raws) + b"]"), []
    except msgspec.ValidationError:
        pass
    found: list[_T | None] = []
    misfits: list[Misfit] = []
    for row, raw in enumerate(raws):
        try:
            found += together.decode(b"[" + raw + b"]")
        except msgspec.ValidationError:
            found.append(None)
            misfits.append(Misfit(row, column.name, reason, bytes(raw).decode()))
    return found, misfits


def _offsets(several: Iterable[Any]) -> pa.Array:
    return pa.array(accumulate((len(one or ()) for one in several), initial=0), pa.int32())


def _nulls(several: Iterable[object]) -> pa.Array:
    return pa.array([one is None for one in several], pa.bool_())


def _rows(several: Sequence[Any]) -> list[int]:
    """The row of each element."""
    return [row for row, one in enumerate(several) for _ in one or ()]


def _firsts(misfits: Iterable[Misfit], rows: Sequence[int]) -> list[Misfit]:
    """The first misfit of each row and path."""
    found: dict[tuple[int, str | None], Misfit] = {}
    for one in misfits:
        found.setdefault((rows[one.row], one.column), replace(one, row=rows[one.row]))
    return list(found.values())


def _raw(form: bytes, texts: Sequence[bytes]) -> msgspec.Raw:
    return msgspec.Raw(form % b",".join(texts))
