"""A result as a person sees it."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pipeline.sql.table import TextTable


def lines(table: TextTable, width: int | None = None) -> list[str]:
    return list(table.lines(width))


def test_columns_stand_side_by_side_numbers_to_the_right() -> None:
    table = TextTable(["topic", "messages"], [False, True], [["orders", "7"], ["events", "12000"], [None, None]])
    assert lines(table, 80) == [
        "topic   messages",
        "──────  ────────",
        "orders         7",
        "events     12000",
        "NULL        NULL",
    ]


def test_what_is_too_wide_is_a_block_a_row() -> None:
    table = TextTable(["offset", "body"], [True, False], [["0", "x" * 30], ["100", None]])
    assert lines(table, 20) == [
        "── row 1 ───────────",
        "offset  0",
        "body    xxxxxxxxxxxx",
        "        xxxxxxxxxxxx",
        "        xxxxxx",
        "── row 2 ───────────",
        "offset  100",
        "body    NULL",
    ]


@pytest.mark.parametrize(
    ("value", "width", "shown"),
    [
        ("x" * 1000, None, ["x" * 1000]),  # where there is no terminal nothing is too wide
        ("\x1b[2Jgone\x07\r\u202eback\x9b", 80, [r"\x1b[2Jgone\x07\r\u202eback\x9b"]),  # it commands no terminal
        ("y" * 1001, None, ["y" * 1000 + "…"]),
    ],
)
def test_a_value(value: str, width: int | None, shown: list[str]) -> None:
    assert [line.strip() for line in lines(TextTable(["text"], [False], [[value]], most=1000), width)[2:]] == shown


def test_several_lines_in_a_value_stay_lines() -> None:
    table = TextTable(["plan"], [False], [["Project\n+- Scan"]])
    assert lines(table)[1:] == ["plan  Project", "      +- Scan"]


def test_wide_characters_keep_the_columns_straight() -> None:
    table = TextTable(["text", "n"], [False, True], [["消息", "1"], ["ok", "2"]])
    assert {cell_len(line) for line in lines(table, 80)} == {7}


def test_a_column_name_cannot_command_the_terminal() -> None:
    name = "wei\x1b]0;owned\x07\nnext"
    side_by_side = list(TextTable([name], [False], [["1"]]).lines(None))
    blocks = list(TextTable([name, "b"], [False, False], [["1", "2"]]).lines(20))
    assert side_by_side[0] == r"wei\x1b]0;owned\x07\nnext"
    assert blocks[1].startswith(r"wei\x1b]0;owned\x07\nnext  1")
