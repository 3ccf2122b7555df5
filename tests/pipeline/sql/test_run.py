"""Statements one after the other, and what is said of a wrong one."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from pipeline.sql.output import Format
from pipeline.sql.reader import Reader
from pipeline.sql.run import run_text
from sources.errors import LogtwinError, QueryError
from tests.pipeline.sql.small_replica import TEXTS

pytestmark = pytest.mark.spark

SCRIPT = """
-- settings answer nothing; results do
SET spark.sql.ansi.enabled = true;
CREATE OR REPLACE TEMPORARY VIEW first AS SELECT * FROM log WHERE offset = 0;
SELECT topic FROM first;
SELECT ';' AS end
"""


def answer(reader: Reader, text: str, form: Format = "csv", width: int | None = None) -> bytes:
    sink = io.BytesIO()
    run_text(reader, text, form, sink, width)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", "topic\norders\n\nend\n;\n"),
        ("json", '{"topic":"orders"}\n{"end":";"}\n'),
        ("table", "topic\n──────\norders\n\nend\n───\n;\n"),
    ],
)
def test_results_in_the_order_of_the_statements(reader: Reader, form: Format, expected: str) -> None:
    assert answer(reader, SCRIPT, form).decode() == expected


def test_a_parquet_file_holds_one_result(reader: Reader) -> None:
    data = answer(reader, "SET spark.sql.ansi.enabled = true; SELECT body FROM log ORDER BY offset", "parquet")
    assert pq.read_table(io.BytesIO(data))["body"].to_pylist() == list(TEXTS)
    with pytest.raises(QueryError, match="holds one result"):
        answer(reader, SCRIPT, "parquet")


def test_plans_and_descriptions_are_whole(reader: Reader) -> None:
    plan = answer(reader, "EXPLAIN EXTENDED SELECT * FROM log", "table").decode()
    assert "== Physical Plan ==" in plan
    assert "…" not in plan.splitlines()[-1]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELCT 1", ["line 1: Syntax error at or near 'SELCT'", "found SELCT 1"]),
        ("SELECT 1;\nSELECT *\nFROM mesages", ["line 3: there is no table or view mesages", "Did you mean messages"]),
        ("SELECT * FROM no_such_thing_at_all", ["no table or view no_such_thing_at_all", "logtwin tables"]),
        ("SELECT topc FROM log", ["there is no column topc", "Did you mean topic?"]),
        ("SELECT m.nothing FROM log m", ["there is no column m.nothing"]),
        ("SELECT no_such_function(1)", ["no_such_function"]),
        ("SELECT 1 / (offset - offset) FROM log", ["line 1: Division by zero"]),
        ("SELECT CAST(topic AS INT) FROM log", ["'orders'", "cannot be cast"]),
        ("SELECT * FROM delta.`/no/such/table`", ["/no/such/table"]),
        (" -- nothing\n;", ["there is no statement"]),
        ("SELECT 'open", ["line 1"]),
    ],
)
def test_what_is_wrong_is_said_in_words_that_help(reader: Reader, query: str, words: list[str]) -> None:
    with pytest.raises(LogtwinError) as caught:
        answer(reader, query, "json")
    said = str(caught.value)
    assert [one for one in words if one not in said] == []
    assert caught.value.exit_code == 2
    assert "\n" not in said
    assert len(said) < 500
