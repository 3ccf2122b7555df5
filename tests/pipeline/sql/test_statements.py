"""A text as its statements: what Spark's lexer takes for a string, a name or a comment does not end one."""

from typing import Any, cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.sql.statements import is_open, split


def texts(text: str) -> list[str]:
    return [one.text for one in split(text).all]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1; SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("", []),
        (" ;; \n; -- nothing; at all\n /* nor; here */", []),
        ("SELECT ';' ; SELECT \";\"", ["SELECT ';'", 'SELECT ";"']),
        ("SELECT 'it''s;'; SELECT 2", ["SELECT 'it''s;'", "SELECT 2"]),
        (r"SELECT 'a\';b'; SELECT 2", [r"SELECT 'a\';b'", "SELECT 2"]),
        (r"SELECT r'a\'; SELECT 2", [r"SELECT r'a\'", "SELECT 2"]),
        (r'SELECT R"a\"; SELECT 2', [r'SELECT R"a\"', "SELECT 2"]),
        ("SELECT bar'a;b'; SELECT 2", ["SELECT bar'a;b'", "SELECT 2"]),
        ("SELECT `a;b``;` FROM t; SELECT 2", ["SELECT `a;b``;` FROM t", "SELECT 2"]),
        ("SELECT 1 -- one; really\n; SELECT 2", ["SELECT 1 -- one; really", "SELECT 2"]),
        (
            "SELECT 1 -- goes on \\\n still; a comment\n; SELECT 2",
            ["SELECT 1 -- goes on \\\n still; a comment", "SELECT 2"],
        ),
        ("SELECT 1 /* a; /* b; */ c; */; SELECT 2", ["SELECT 1 /* a; /* b; */ c; */", "SELECT 2"]),
        ("SELECT /*+ COALESCE('*/;') */ 1; SELECT 2", ["SELECT /*+ COALESCE('*/;') */ 1", "SELECT 2"]),
        ("SELECT /*+ REPARTITION(3) */* ; SELECT 2", ["SELECT /*+ REPARTITION(3) */*", "SELECT 2"]),
        ("SELECT 'never ends; SELECT 2", ["SELECT 'never ends; SELECT 2"]),
        ("/* never ends; SELECT 2", ["/* never ends; SELECT 2"]),
    ],
)
def test_a_semicolon_ends_a_statement_outside_of_strings_names_and_comments(text: str, statements: list[str]) -> None:
    assert texts(text) == statements


WHOLE = ("SELECT 1; -- done", "SELECT ';';\n", "", "/* ; */")
LEFT = ("SELECT 1", "SELECT 1; SELECT ';'", "SELECT 1 -- a")
OPEN = ("SELECT 'a;", "SELECT 1 /* ;", "SELECT `;")


@pytest.mark.parametrize("text", [*WHOLE, *LEFT, *OPEN])
def test_what_has_no_semicolon_of_its_own_is_left_and_what_does_not_end_is_open(text: str) -> None:
    assert (split(text).rest is None) == (text in WHOLE)
    assert is_open(text) is (text in OPEN)


def test_a_long_string_without_an_end_takes_no_time() -> None:
    text = "SELECT '" + "\\a'' " * 100_000
    assert len(split(text).all) == 1


PIECES = ("SELECT ", "1", "r", "ä", " ", "\n", "\r\n", ";", "'", '"', "`", "\\", "-", "--", "/*", "*/", "/*+", "*", "/")


@pytest.mark.spark
@given(text=st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_it_splits_where_sparks_lexer_finds_a_semicolon(spark: SparkSession, text: str) -> None:
    """What does not end is one statement here, which Spark refuses as a whole; its lexer goes on after the quote."""
    assume(not is_open(text))
    assert texts(text) == texts_by_lexer(spark, text)


def texts_by_lexer(spark: SparkSession, text: str) -> list[str]:
    jvm = cast(Any, spark._jvm)
    parser = jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(jvm.org.antlr.v4.runtime.CharStreams.fromString(text)))
    lexer.removeErrorListeners()
    found: list[str] = []
    first = None
    for token in lexer.getAllTokens():
        if token.getText() == ";":
            found += [] if first is None else [text[first : token.getStartIndex()].rstrip()]
            first = None
        elif token.getChannel() == 0 and first is None:
            first = token.getStartIndex()
    return found if first is None else [*found, text[first:].rstrip()]
