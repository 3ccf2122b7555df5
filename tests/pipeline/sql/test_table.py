"""A result as a person sees it."""

from __future__ import annotations

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


def test_where_there_is_no_terminal_nothing_is_too_wide() -> None:
    table = TextTable(["offset", "body"], [True, False], [["0", "x" * 3000]])
    assert lines(table)[-1] == "     0  " + "x" * 3000


def test_several_lines_in_a_value_stay_lines() -> None:
    table = TextTable(["plan"], [False], [["Project\n+- Scan"]])
    assert lines(table)[1:] == ["plan  Project", "      +- Scan"]


def test_wide_characters_keep_the_columns_straight() -> None:
    table = TextTable(["text", "n"], [False, True], [["消息", "1"], ["ok", "2"]])
    assert {cell_len(line) for line in lines(table, 80)} == {7}


def test_a_value_cannot_command_the_terminal() -> None:
    table = TextTable(["text"], [False], [["\x1b[2Jgone\x07\r\u202eback\x9b"]])
    assert lines(table, 80)[-1] == r"\x1b[2Jgone\x07\r\u202eback\x9b"


def test_a_long_value_is_cut_and_says_so() -> None:
    table = TextTable(["text"], [False], [["abcdef"], ["abc"]], most=3)
    assert lines(table, 80)[2:] == ["abc…", "abc"]


def test_a_column_name_cannot_command_the_terminal() -> None:
    name = "wei\x1b]0;owned\x07\nnext"
    side_by_side = list(TextTable([name], [False], [["1"]]).lines(None))
    blocks = list(TextTable([name, "b"], [False, False], [["1", "2"]]).lines(20))
    assert side_by_side[0] == r"wei\x1b]0;owned\x07\nnext"
    assert blocks[1].startswith(r"wei\x1b]0;owned\x07\nnext  1")
