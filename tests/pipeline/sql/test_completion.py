"""What is offered while somebody types."""

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from pipeline.sql.shell import NameCompleter, Names

NAMES = Names(
    tables={"messages": ("topic", "tags", "text"), "consumer_lag": ("topic", "messages_behind"), "log": ("offset",)},
    functions=("to_json", "max"),
    keywords=("SELECT", "FROM", "TABLE", "GROUP"),
)


@pytest.mark.parametrize(
    ("before", "after", "offered"),
    [
        ("se", "", ["select"]),
        ("SE", "", ["SELECT"]),
        ("SELECT * FROM ", "", ["messages", "consumer_lag", "log"]),
        ("SELECT * FROM m", "", ["messages"]),
        ("select 1 from log join c", "", ["consumer_lag"]),
        ("DESCRIBE l", "", ["log"]),
        (r"\d l", "", ["log"]),
        ("SELECT t", " FROM messages", ["topic", "tags", "text", "to_json", "table"]),
        ("SELECT messages.t", "", ["topic", "tags", "text"]),
        ("SELECT * FROM messages AS m JOIN consumer_lag l ON m.to", "", ["topic"]),
        ("SELECT * FROM messages AS m JOIN consumer_lag l ON l.", "", ["topic", "messages_behind"]),
        ("SELECT l.m", " FROM consumer_lag l", ["messages_behind"]),
        ("SELECT x.t", "", []),
        ("SELECT m", " FROM consumer_lag", ["messages_behind", "messages", "max"]),
        ("SELECT ", "", []),
        ("SELECT 't", "", []),
        ("SELECT 't' AS g", "", ["group"]),
    ],
)
def test_what_is_likeliest_comes_first(before: str, after: str, offered: list[str]) -> None:
    assert [one.word for one in NAMES.suggestions(before, after)] == offered


def test_the_word_that_is_typed_is_replaced() -> None:
    text = "SELECT * FROM mes"
    (found,) = NameCompleter(NAMES).get_completions(Document(text), CompleteEvent())
    assert text[: len(text) + found.start_position] + found.text == "SELECT * FROM messages"


def test_a_name_that_would_command_the_terminal_is_not_offered() -> None:
    names = Names(tables={"orders": ("total", "to\x1b[2J", "to\nto")})
    assert [one.word for one in names.suggestions("SELECT to", " FROM orders")] == ["total"]
