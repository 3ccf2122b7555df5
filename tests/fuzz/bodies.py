"""Bodies of typed tables: long digits, exponents without end, times at the bounds, in JSON and in CSV.

What they are in Avro and Protobuf tests/sinks/typed/formats shows, beside other implementations.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pyarrow as pa

from sinks.typed.columns import Column
from sinks.typed.formats.csv_record import csv_reader
from sinks.typed.formats.json_fields import Reader, column_values, fields_of, kind_of, taken_apart, texts_of
from tests.fuzz import plain_values
from tests.fuzz.mutations import text
from tests.fuzz.plain_values import fits, value_of

KINDS = ("boolean", "int", "bigint", "double", "string", "timestamp", "timestamp_ms", "date", "decimal(12,2)",
         "decimal(38,0)", "decimal(38,38)", "decimal(1,1)")  # fmt: skip
BOUNDS = (0, 1, 1 << 31, 1 << 53, 1 << 63, 1 << 64, 1 << 256, 10**38, 253_402_300_800_000, 62_135_596_800_000)
ZONES = ("Z", "z", "+08:00", "-08:00", "+0200", "-00:00", "+23:59", "+24:00", "-05:60", "+02", "")


def number(rng: random.Random) -> str:
    """What JSON calls a number, or almost."""
    if rng.random() < 0.4:
        near = rng.choice(BOUNDS) * rng.choice((1, -1)) + rng.randint(-2, 2)
        return str(near) + rng.choice(("", "", ".0", ".5", "e0", "e-1"))
    digits = rng.choice(("0", "7", "9", "19", rng.choice("19") * rng.choice((17, 39, 40, 309, 310, 4301, 5000))))
    fraction = rng.choice(("", "", "0", "5", "01", "50", "0" * rng.choice((38, 5000)) + "1", "9" * 400))
    exponent = rng.choice(("", "", "e2", "E+2", "e-2", "e-41", "e400", "e-400", "e-5000000", "e999999999",
                           "e-999999999", "e" + "0" * 5000 + "1", "e-" + "9" * 5000, "e5000", "e-5000"))  # fmt: skip
    sign = rng.choice(("", "", "-"))
    return sign + digits + ("." + fraction if fraction else "") + exponent


def time(rng: random.Random) -> str:
    day = rng.choice(("0001-01-01", "9999-12-31", "2024-12-31", "1969-12-31", "0000-12-31", "2023-02-29", "2024-02-29"))
    at = rng.choice(("00:00:00", "23:59:59", "07:59:59", "16:00:00", "24:00:00", "23:59:60", "12:00"))
    fraction = rng.choice(("", "", ".5", ".9999999", ".999999999", ".", ".000000" + "9" * 5000))
    return day + rng.choice("TTTt ") + at + fraction + rng.choice(ZONES)


def day_text(rng: random.Random) -> str:
    return rng.choice(("0001-01-01", "9999-12-31", "0000-12-31", "2023-02-29", "20240229", "2024-W01-1", "10000-01-01"))


def changed(said: str, rng: random.Random) -> str:
    """Sometimes with a character that Python's constructors would pass over."""
    if rng.random() < 0.8:
        return said
    at = rng.randint(0, len(said))
    return said[:at] + rng.choice(("_", " ", "\n", "\u0663", "+", "-", "0", ".", "e", "inf", "\x00")) + said[at:]


def said(rng: random.Random) -> str:
    make = rng.choice((number, number, time, day_text, text))
    return changed(make(rng), rng)


def check(rng: random.Random) -> None:
    """Each value as the plain reading has it, or a misfit; nothing else is raised."""
    rng.choice((_check_json, _check_json, _check_csv))(rng)


def _values(reader: Reader, bodies: Sequence[bytes], kinds: Mapping[str, str]) -> list[dict[str, Any]]:
    """What each body's columns have, times in microseconds; null where a value is a misfit, and only there or of null.
    All of the bodies have to be of their format."""
    objects, _, misfits = taken_apart(bodies, reader)
    assert not misfits, misfits
    found: list[dict[str, Any]] = [{} for _ in bodies]
    for name, kind in kinds.items():
        column = Column(name, name, kind)
        raws = texts_of(objects, column)
        array, wrong = column_values(column, raws)
        array.validate(full=True)
        assert array.type == column.type
        rows = {one.row for one in wrong}
        assert rows == {row for row, one in enumerate(array) if not one.is_valid and bytes(raws[row]) != b"null"}
        numbers = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
        for row, value in enumerate(numbers.to_pylist()):
            found[row][name] = value
    return found


def _check_json(rng: random.Random) -> None:
    kinds = {f"c{at}": rng.choice(KINDS) for at in range(rng.randint(1, 3))}
    bodies, expected = [], []
    for _ in range(rng.randint(1, 4)):
        fields, values = {}, {}
        for name, kind in kinds.items():
            is_string = rng.random() < 0.5
            one = said(rng) if is_string else _bare(rng)
            fields[name] = json.dumps(one, ensure_ascii=rng.random() < 0.5) if is_string else one
            values[name] = None if one == "null" and not is_string else value_of(kind, one, is_string=is_string)
            _check_found(fields[name], one, is_string=is_string)
        bodies.append(("{" + ",".join(f'"{name}":{one}' for name, one in fields.items()) + "}").encode())
        expected.append(values)
    _same(_values(fields_of, bodies, kinds), expected)


def _bare(rng: random.Random) -> str:
    """A number of JSON, or one of its words."""
    one = number(rng)
    return rng.choice(("true", "false", "null")) if rng.random() < 0.1 else one


def _check_found(raw: str, one: str, *, is_string: bool) -> None:
    """Which column the value asks for, where none is declared."""
    found = kind_of(msgspec.Raw(raw.encode()))
    if is_string or one in ("true", "false", "null"):
        assert found == ("string" if is_string else None if one == "null" else "boolean")
        return
    whole = plain_values.integer(one)
    if whole is not None:
        assert found == ("bigint" if fits(whole, 63) else None)
    else:
        assert found == ("double" if math.isfinite(float(one)) else None)


def _same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for made, right in zip(found, expected, strict=True):
        plain = {name: Fraction(one) if isinstance(one, Decimal) else one for name, one in made.items()}
        assert plain == right
        for name, one in made.items():
            assert type(one) is type(right[name]) or isinstance(one, Decimal)


def _check_csv(rng: random.Random) -> None:
    kinds = {f"c{at}": rng.choice(KINDS) for at in range(rng.randint(1, 3))}
    given = [rng.choice((said, _bare))(rng) for _ in kinds]
    mark = rng.choice(("", "", "\ufeff"))
    body = mark + ",".join('"' + one.replace('"', '""') + '"' for one in given)
    expected = {name: _of_csv(kind, one) for (name, kind), one in zip(kinds.items(), given, strict=True)}
    _same(_values(csv_reader(kinds), [body.encode()], kinds), [expected])


def _of_csv(kind: str, one: str) -> Any:
    """CSV does not tell a string from a number: the column's kind does."""
    return value_of(kind, one, is_string=kind in ("string", "timestamp", "date"))
