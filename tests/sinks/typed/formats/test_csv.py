"""CSV bodies, against Python's csv."""

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.formats.csv_record import csv_reader
from tests.sinks.typed.formats.columns import outcome, row_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(',;"\r\na ', max_size=8)


@given(
    st.lists(TEXTS, min_size=1, max_size=6),
    st.sampled_from(",;\t|.^"),
    st.sampled_from(["", "\n", "\r\n"]),
    st.booleans(),
)
def test_a_record_is_what_pythons_csv_wrote(values: list[str], separator: str, end: str, quotes_all: bool) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL).writerow(values)
    text = out.getvalue().removesuffix("\r\n") + end
    if not quotes_all and values == [""]:
        text = end  # Python's writer quotes it
    found = csv_reader({str(number): "string" for number in range(len(values))}, separator)(text.encode())
    said = [json.loads(bytes(raw)) for raw in found.values()]
    assert said == [one if one or quotes_all else None for one in values]


@given(st.text(',"\n\ra1', max_size=12))
def test_any_text_is_what_pythons_csv_reads_or_a_misfit(text: str) -> None:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    reason = outcome(csv_reader({"a": "string", "b": "string"}), text.encode())
    if reason is None:
        assert len(rows) == 1
        found = csv_reader({"a": "string", "b": "string"})(text.encode())
        assert [json.loads(bytes(raw)) or "" for raw in found.values()] == rows[0]
    else:
        assert reason in ("not_csv", "wrong_fields")


FITS = [
    ("bigint", "12", 12),
    ("bigint", '"12"', 12),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("int", "-1", -1),
    ("double", "1.50", 1.5),
    ("decimal(5,2)", "1.50", Decimal("1.50")),
    ("decimal(5,2)", '"1.50"', Decimal("1.50")),
    ("boolean", "true", True),
    ("string", "12", "12"),
    ("string", "true", "true"),
    ("string", '""', ""),
    ("date", "2026-11-25", date(2026, 11, 25)),
    ("timestamp", "2026-11-25T10:00:00Z", datetime(2026, 11, 25, 10, tzinfo=UTC)),
    ("timestamp_ms", "1", datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
]
UNFIT = {
    "bigint": ["9223372036854775808", "007", "+7", " 7"],
    "double": ["NaN", "1e400"],
    "decimal(5,2)": ["1.505", "007", "+7", "1_0", "\u0663", "1e-999999999"],
    "boolean": ["TRUE", "1"],
}


@pytest.mark.parametrize(
    ("kind", "text", "value"), [*FITS, *((kind, one, None) for kind, several in UNFIT.items() for one in several)]
)
def test_values(kind: str, text: str, value: object) -> None:
    found, wrong = row_of(csv_reader({"a": kind, "b": "string"})(f"{text},\n".encode()), {"a": kind, "b": "string"})
    assert (found, bool(wrong)) == ({"a": value, "b": None}, value is None)


def test_a_byte_order_mark_is_no_part_of_the_first_value() -> None:
    kinds = {"a": "string", "b": "bigint"}
    for body, first in ((b"x,1", "x"), (b'"x",1', "x"), (b",1", None), (b'"",1', "")):
        found, wrong = row_of(csv_reader(kinds)(b"\xef\xbb\xbf" + body), kinds)
        assert (found, wrong) == ({"a": first, "b": 1}, {})
    numbers = {"a": "bigint", "b": "bigint"}
    assert row_of(csv_reader(numbers)(b"\xef\xbb\xbf7,1"), numbers) == ({"a": 7, "b": 1}, {})


NO_RECORDS: dict[str, list[bytes | None]] = {
    "no_body": [None],
    "not_utf8": [b"\xff,1"],
    "wrong_fields": [b"1", b"", b"1,2,3"],
    "not_csv": [b"1,2\n3,4", b"1,2\n\n", b'"1,2', b'"1"x,2', b'1"x",2', b"1\r2,3"],
}


@pytest.mark.parametrize(("reason", "body"), [(reason, one) for reason, all_ in NO_RECORDS.items() for one in all_])
def test_what_is_no_record(reason: str, body: bytes | None) -> None:
    assert outcome(csv_reader({"a": "bigint", "b": "bigint"}), body) == reason
