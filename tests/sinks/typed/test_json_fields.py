"""JSON bodies as columns, against Python's own reader of JSON, and a table of what does not fit."""

import hashlib
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.columns import Column
from sinks.typed.formats.json_fields import (
    NoObject,
    column_values,
    fields_of,
    kind_of,
    kind_with_times,
    rest_of,
    taken_apart,
    text_of,
    texts_of,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 80), 1 << 80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def values_of(kind: str, *given: object, mask: str | None = None) -> tuple[list[Any], list[int]]:
    """What a column makes of values in Python's JSON, and the rows that do not fit."""
    raws = [msgspec.Raw(one if isinstance(one, bytes) else json.dumps(one).encode()) for one in given]
    found, misfits = column_values(Column("c", "c", kind, mask), raws)
    assert len(found) == len(given)
    return found.to_pylist(), [one.row for one in misfits]


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=5), max_size=5), st.sampled_from([None, 0, 2]))
def test_fields_are_what_python_reads(objects: list[dict[str, Any]], indent: int | None) -> None:
    bodies = [json.dumps(one, ensure_ascii=False, indent=indent).encode() for one in objects]
    found, rows, misfits = taken_apart(bodies)
    assert rows == list(range(len(bodies)))
    assert not misfits
    assert [{name: json.loads(bytes(raw)) for name, raw in one.items()} for one in found] == objects


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_the_rest_is_the_rest(fields: dict[str, Any]) -> None:
    text = rest_of(fields_of(json.dumps(fields).encode()))
    said = {name: value for name, value in fields.items() if value is not None}
    assert (json.loads(text) if text is not None else {}) == said


@given(VALUES)
def test_a_kind_takes_the_value_that_asks_for_it(value: Any) -> None:
    raw = msgspec.Raw(json.dumps(value).encode())
    kind = kind_of(raw)
    if kind is None:
        assert value is None or (type(value) is int and not -(1 << 63) <= value < 1 << 63)
        return
    found, misfits = column_values(Column("c", "c", kind), [raw])
    made = found[0].as_py()
    assert not misfits
    assert (json.loads(made) if kind == "json" else made) == value


def test_a_text_that_a_column_of_times_takes_may_be_one() -> None:
    values = {"2026-11-28T09:00:00.5+01:00": "timestamp", "2026-11-28": "string", "": "string", 1: "bigint", None: None}
    for value, kind in values.items():
        assert kind_with_times(msgspec.Raw(json.dumps(value).encode())) == kind


NO_OBJECTS: dict[str, list[bytes | None]] = {
    "no_body": [None],
    "not_json": [
        *(b"", b"   ", b"{", b'{"a":1} {"b":2}', b"{'a':1}", b'{"a":NaN}', b'{"a":01}', b'{"a":1.}'),
        *(b'{"a":"\\ud800"}', b'{"a":"\x01"}', b'\xef\xbb\xbf{"a":1}'),
    ],
    "not_utf8": [b'{"a":"\xff"}'],
    "no_object": [b"[1]", b"12", b"null"],
    "too_deep": [b'{"a":' + b"[" * deep + b"]" * deep + b"}" for deep in (101, 100_000)],
}


@pytest.mark.parametrize(("reason", "body"), [(reason, one) for reason, bodies in NO_OBJECTS.items() for one in bodies])
def test_what_is_no_object(reason: str, body: bytes | None) -> None:
    with pytest.raises(NoObject) as caught:
        fields_of(body)
    assert caught.value.reason == reason


def test_a_byte_order_mark_is_no_part_of_a_text() -> None:
    texts = [b"\xef\xbb\xbfa", b"\xef\xbb\xbf", b"a\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbfa"]
    assert [json.loads(bytes(text_of(one)[""])) for one in texts] == ["a", "", "a\ufeff", "\ufeffa"]


def test_many_brackets_are_not_deep() -> None:
    assert set(fields_of(json.dumps({"a": [[[]]] * 200, "b": "[" * 500}).encode())) == {"a", "b"}


def test_of_a_name_given_twice_the_last_counts() -> None:
    column = Column("a", "a", "int")
    assert column_values(column, texts_of([fields_of(b'{"a":1,"a":2}')], column))[0].to_pylist() == [2]


FITS = [
    ("timestamp", "2026-11-25T10:00:00Z", datetime(2026, 11, 25, 10, tzinfo=UTC)),
    ("timestamp", "2026-11-25T10:00:00.123456+02:00", datetime(2026, 11, 25, 8, 0, 0, 123456, tzinfo=UTC)),
    ("timestamp", "2024-12-31T23:59:59.999999999Z", datetime(2024, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamp", "1969-12-31T23:59:59.9999999Z", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamp", f"2024-12-31T23:59:59.{'9' * 5000}Z", datetime(2024, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamp", "2024-12-31t23:59:59.5z", datetime(2024, 12, 31, 23, 59, 59, 500000, tzinfo=UTC)),
    ("timestamp", b'"2024-12-31T23:59:59.99999999\\u0039Z"', datetime(2024, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamp", "0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamp", "0001-01-01T08:00:00+08:00", datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamp", "9999-12-31T15:59:59.999999999-08:00", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamp_ms", 1795640244933, datetime(2026, 11, 25, 20, 57, 24, 933000, tzinfo=UTC)),
    ("timestamp_ms", -1, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ("timestamp_ms", -62135596800000, datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamp_ms", 253402300799999, datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ("date", "0001-01-01", date(1, 1, 1)),
    ("date", "9999-12-31", date(9999, 12, 31)),
    ("date", "2026-11-25", date(2026, 11, 25)),
    ("decimal(5,2)", "12.30", Decimal("12.30")),
    ("decimal(12,2)", b"1e" + b"0" * 5000 + b"1", Decimal(10)),
    ("decimal(12,2)", b"0e-" + b"9" * 5000, Decimal(0)),
    ("decimal(12,2)", b"-0.000e999999999", Decimal(0)),
    ("decimal(12,2)", b"0." + b"0" * 5000 + b"125e5002", Decimal("12.5")),
    ("decimal(12,2)", b"125" + b"0" * 5000 + b"e-5001", Decimal("12.5")),
    ("decimal(12,2)", b"1.50" + b"0" * 5000, Decimal("1.5")),
    ("decimal(12,2)", b"9999999999.99", Decimal("9999999999.99")),
    ("decimal(12,2)", "1e2", Decimal(100)),
    ("decimal(12,2)", b'"1\\u0030"', Decimal(10)),
    ("decimal(38,38)", b"0." + b"9" * 38, Decimal("0." + "9" * 38)),
    ("decimal(38,0)", b"12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
    ("double", 1 << 1023, float(1 << 1023)),
    ("bigint", -(1 << 63), -(1 << 63)),
    ("int", (1 << 31) - 1, (1 << 31) - 1),
    ("boolean", True, True),
    ("string", "é", "é"),
    ("json", {"a": [1, None]}, '{"a": [1, null]}'),
    ("json", 1.50, "1.5"),
]
NINES = b"9" * 5000
UNFIT: dict[str, list[object]] = {
    "timestamp": [
        *("2026-11-25T10:00:00", "yesterday", 1795640244933, "10000-01-01T00:00:00Z", "2024-02-30T00:00:00Z"),
        *("0001-01-01T00:00:00+08:00", "9999-12-31T23:59:59-08:00", "0000-12-31T23:59:59-08:00"),  # by UTC
        *("2024-12-31T24:00:00Z", "2024-12-31T23:59:60Z", "2024-12-31T23:59Z", "2024-12-31T23:59:59,5Z"),
        *("2024-12-31T23:59:59.Z", "2024-12-31T23:59:59+24:00", "2024-12-31T23:59:59+05:60"),
        *("\u0662\u0660\u0662\u0664-12-31T23:59:59Z", "2024-12-31T23:59:59Z\n"),  # Arabic digits
    ],
    "timestamp_ms": [1 << 62, -62135596800001, 253402300800000, 1.5, NINES],
    "date": [
        *("0000-12-31", "20261125", "2026-W01-1", "\u0662\u0660\u0662\u0664-12-31", "2026-11-25\n", "2026-02-30"),
        20260225,
    ],
    "decimal(5,2)": [b"0.001", b"1234.5", "NaN", " 1"],  # of the first a digit would go
    "decimal(12,2)": [
        *(b"1e-41", b"1e-5000000", b"1e-999999999", b"1e999999999", b"1e-" + NINES, b"1e" + NINES, b"10000000000"),
        *(b"1.5" + b"0" * 5000 + b"1", "1_000.50", "\u0663", "007", "+7", "1.", ".5", "1\n", "", "Infinity", "sNaN123"),
        *(True, [1]),
    ],
    "decimal(38,38)": [b"1"],
    "decimal(38,0)": [b"1e38"],
    "double": [b"1e400", (1 << 53) + 1, (1 << 256) - 1, 10**42 + 1, b"9" * 309, NINES, b"-" + NINES],
    "bigint": [(1 << 256) - 1, NINES, b"1.0", b"1e3", "1", True, 1 << 63],
    "int": [NINES, 1 << 31, -(1 << 31) - 1, 1.0, True, "1", [1], {}],
    "boolean": [1, "true", [True]],
    "string": [1, 1.5, True, ["x"], {}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "expected"), [*FITS, *((kind, one, None) for kind, several in UNFIT.items() for one in several)]
)
def test_what_fits_into_a_column(kind: str, value: object, expected: object) -> None:
    """Alone, beside others that fit, and beside one that does not."""
    for others in ((), (None,), (None, b"{}")):
        found, misfits = values_of(kind, value, *others)
        assert found[0] == expected
        assert (0 in misfits) == (expected is None)
        assert found[1:2] == [*others[:1]]
        assert 1 not in misfits


def test_doubles_are_the_numbers_that_were_sent() -> None:
    given = [0.1, -0.0, 1e-300, 123456789.123456789, 1.7976931348623157e308, 5e-324]
    found, misfits = values_of("double", *given)
    assert (found, misfits) == (given, [])
    assert math.copysign(1, found[1]) == -1


def test_masked_values_are_hidden_whatever_they_are() -> None:
    hashed = hashlib.sha256(b"4711").hexdigest()
    assert values_of("bigint", "4711", 4711, None, mask="hash") == ([hashed, hashed, None], [])
    assert values_of("string", "x", {"a": 1}, None, mask="redact") == (["***", "***", None], [])
    assert values_of("string", "x", mask="null") == ([None], [])
