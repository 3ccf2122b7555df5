"""Values of columns with parts, beside what plain Python makes of the same JSON."""

import io
import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.columns import Column
from sinks.typed.formats.nested_values import column_of

NAMES = st.sampled_from(["a", "b", "c.d", "é"])
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 60), 1 << 60),
    "string": st.text(st.characters(codec="utf-8"), max_size=5),
    "date": st.dates().map(str),
    "decimal(5,2)": st.integers(-99999, 99999).map(lambda cents: cents / 100),
    "json": st.recursive(st.integers(0, 9), lambda one: st.lists(one, max_size=2) | st.dictionaries(NAMES, one)),
}
ANYTHING = st.one_of(*SCALARS.values(), st.just({"a": {}}), st.just([[]]))
Type = tuple[str, Any]  # ("scalar", kind), ("array", Type), ("map", Type), ("struct", {name: Type})


def types(depth: int = 3) -> st.SearchStrategy[Type]:
    scalar = st.tuples(st.just("scalar"), st.sampled_from([*SCALARS]))
    if not depth:
        return scalar
    below = types(depth - 1)
    struct = st.tuples(st.just("struct"), st.dictionaries(NAMES, below, min_size=1))
    return scalar | struct | st.tuples(st.sampled_from(["array", "map"]), below)


def text_of(of: Type) -> str:
    what, more = of
    if what == "scalar":
        return str(more)
    if what == "struct":
        return f"struct<{','.join(f'`{name}`:{text_of(one)}' for name, one in more.items())}>"
    return f"array<{text_of(more)}>" if what == "array" else f"map<string,{text_of(more)}>"


def values(of: Type) -> st.SearchStrategy[Any]:
    """Mostly such that fit; with null, and with fields that the type does not name."""
    what, more = of
    if what == "scalar":
        fits = SCALARS[more]
    elif what == "array":
        fits = st.lists(values(more), max_size=3)
    elif what == "map":
        fits = st.dictionaries(NAMES, values(more), max_size=3)
    else:
        named = st.fixed_dictionaries({}, optional={name: values(one) for name, one in more.items()})
        fits = st.builds(lambda one, others: {**others, **one}, named, st.dictionaries(st.just("more"), ANYTHING))
    return st.integers(0, 9).flatmap(lambda dice: st.none() if dice == 0 else ANYTHING if dice == 1 else fits)


def scalar_of(kind: str, value: Any) -> Any:
    """Raises ValueError for a value that does not fit. Numbers with a fraction, or an exponent, are Decimals."""
    if kind == "json":
        return value
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    is_text = isinstance(value, str)
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind in ("int", "bigint") and is_integer and -(1 << (bits := 31 if kind == "int" else 63)) <= value < 1 << bits:
        return value
    if kind == "double" and (isinstance(value, Decimal) or (is_integer and int(float(value)) == value)):
        return float(value)
    if (kind == "string" and is_text) or (kind == "date" and is_text):
        return value if kind == "string" else date.fromisoformat(value if len(value) == len("2026-11-25") else "")
    if kind == "decimal(5,2)" and not isinstance(value, bool | list | dict):
        try:
            number = Decimal(value)
        except ArithmeticError:
            raise ValueError from None
        if number.is_finite() and number.scaleb(2) == int(number.scaleb(2)) and abs(number) < 1000:
            return number
    raise ValueError


class Decoder:
    """Of one value: what the column has, and what does not fit, by path."""

    def __init__(self) -> None:
        self.wrong: set[str] = set()

    def of(self, of: Type, value: Any, path: str) -> tuple[Any, Any]:
        """The value, and what is left of it."""
        what, more = of
        if value is None:
            return None, None
        if what == "scalar":
            try:
                return scalar_of(more, value), None
            except ValueError:
                return self.misfit(path)
        if what == "array":
            if not isinstance(value, list):
                return self.misfit(path)
            several = [self.of(more, one, path) for one in value]
            left = [one for _, one in several]
            while left and left[-1] is None:
                left.pop()
            return [one for one, _ in several], left or None
        if not isinstance(value, dict):
            return self.misfit(path)
        if what == "map":
            found = {name: self.of(more, one, f"{path}.*") for name, one in value.items()}
        else:
            found = {name: self.of(one, value.get(name), f"{path}.{name}") for name, one in more.items()}
        left_of = {name: one for name, (_, one) in found.items() if one is not None}
        if what == "struct":
            left_of |= {name: one for name, one in value.items() if name not in more and one is not None}
        return {name: one for name, (one, _) in found.items()}, left_of or None

    def misfit(self, path: str) -> tuple[None, None]:
        self.wrong.add(path)
        return None, None


def written(column: Column, array: pa.Array) -> list[Any]:
    """As a Parquet file gives it back."""
    sink = io.BytesIO()
    pq.write_table(pa.table({column.name: array}), sink, store_schema=False)
    return list(pq.read_table(sink)[column.name].to_pylist(maps_as_pydicts="strict"))


def with_json_read(of: Type, value: Any) -> Any:
    """A column's value, whose parts of kind json are read."""
    what, more = of
    if value is None or (what, more) == ("scalar", "json"):
        return None if value is None else json.loads(value, parse_float=Decimal)
    if what == "array":
        return [with_json_read(more, one) for one in value]
    if what == "map":
        return {name: with_json_read(more, one) for name, one in value.items()}
    return {name: with_json_read(one, value[name]) for name, one in more.items()} if what == "struct" else value


@st.composite
def cases(draw: st.DrawFn) -> tuple[Type, list[Any]]:
    of = draw(types())
    return of, draw(st.lists(values(of), min_size=1, max_size=4))


@given(cases())
def test_is_what_plain_python_makes_of_it(case: tuple[Type, list[Any]]) -> None:
    of, several = case
    column = Column("f", "f", text_of(of))
    texts = [json.dumps(one, ensure_ascii=False) for one in several]
    objects: list[dict[str, msgspec.Raw]] = [{"f": msgspec.Raw(one.encode())} for one in texts]
    _, array, misfits = column_of(objects, column)
    array.validate(full=True)
    assert len({(one.row, one.column) for one in misfits}) == len(misfits)
    found = [with_json_read(of, one) for one in written(column, array)]
    for row, text in enumerate(texts):
        decoder = Decoder()
        value, left = decoder.of(of, json.loads(text, parse_float=Decimal), "f")
        assert found[row] == value
        assert {one.column for one in misfits if one.row == row} == decoder.wrong
        kept = objects[row].get("f")
        assert (None if kept is None else json.loads(bytes(kept), parse_float=Decimal)) == left


def told(kind: str, *texts: str) -> Iterator[tuple[int, str | None, str, str]]:
    objects = [{"f": msgspec.Raw(one.encode())} for one in texts]
    return ((one.row, one.column, one.reason, one.found) for one in column_of(objects, Column("f", "f", kind))[2])


@pytest.mark.parametrize(
    ("kind", "text", "misfit"),
    [
        ("struct<a:int>", "[1]", ("f", "not_struct", "[1]")),
        ("array<int>", '{"a":1}', ("f", "not_array", '{"a":1}')),
        ("map<string,int>", '"x"', ("f", "not_map", '"x"')),
        ("array<struct<a:int>>", '[{"a":1},{"a":"x"},{"a":"y"}]', ("f.a", "not_int", '"x"')),
        ("map<string,struct<a:int>>", '{"k":{"a":1.5}}', ("f.*.a", "not_int", "1.5")),
    ],
)
def test_a_misfit_names_its_path_and_the_first_value(kind: str, text: str, misfit: tuple[str, str, str]) -> None:
    assert list(told(kind, "null", text)) == [(1, *misfit)]
