"""A result as a person sees it, and where results go."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from pipeline.sql.output import TextTable, destination, paged
from sources.errors import ConfigurationError, QueryError


def test_a_file_is_replaced_once_all_is_written(tmp_path: Path) -> None:
    file = tmp_path / "result.csv"
    file.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), destination(file) as sink:
        sink.write(b"half")
        raise KeyboardInterrupt
    with destination(file) as sink:
        sink.write(b"after")
        sink.flush()
        assert file.read_bytes() == b"before"
    assert file.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with destination(pipe) as sink:
            sink.write(b"rows")
        assert os.read(reader, 100) == b"rows"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("place", ["missing/result.csv", "."])
def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot write") as caught, destination(tmp_path / place):
        pass
    assert str(tmp_path) in str(caught.value)


def lines(table: TextTable, width: int | None = None) -> list[str]:
    return list(table.shown(width)[0])


def test_columns_stand_side_by_side_numbers_to_the_right() -> None:
    table = TextTable(["topic", "messages"], [False, True], [["orders", "7"], ["events", "12000"], [None, None]])
    assert lines(table, 80) == [
        "topic   messages",
        "──────  ────────",
        "orders         7",
        "events     12000",
        "NULL        NULL",
    ]


WIDE = TextTable(
    ["offset", "topic", "body", "note"],
    [True, False, False, False],
    [["1234567890", "orders", "消息" * 30, "a\nb"], ["7", "x" * 20, "y" * 20, None]],
    most=1000,
)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (
            50,
            [
                "    offset  topic            body             note",
                "──────────  ───────────────  ───────────────  ────",
                "1234567890  orders           消息消息消息消…  a\\nb",
                "         7  xxxxxxxxxxxxxx…  yyyyyyyyyyyyyy…  NULL",
            ],
        ),
        (
            35,
            [
                "    offset  topic      body       …",
                "──────────  ─────────  ─────────  …",
                "1234567890  orders     消息消息…  …",
                "         7  xxxxxxxx…  yyyyyyyy…  …",
            ],
        ),
        (5, ["    offset  …", "──────────  …", "1234567890  …", "         7  …"]),  # a number is never cut
    ],
)
def test_rows_that_are_too_wide_are_cut(width: int, shown: list[str]) -> None:
    found, is_narrowed = WIDE.shown(width)
    assert (list(found), is_narrowed) == (shown, True)
    assert not replace(WIDE, rows=WIDE.rows[:1]).shown(width)[1]  # one row is a block, with all of it
    assert not WIDE.shown(200)[1]


def test_what_is_long_goes_to_the_pager(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    paged_texts: list[str] = []
    monkeypatch.setattr("rich.pager.SystemPager.show", lambda _, text: paged_texts.append(text))
    for several in (2, 3):
        with paged(3) as sink:
            sink.write(b"line\n" * several)
    with pytest.raises(QueryError), paged(3) as sink:
        sink.write(b"before it failed\n")
        raise QueryError("it fails")
    assert (capsys.readouterr().out, paged_texts) == ("line\n" * 2 + "before it failed\n", ["line\n" * 3])


def test_what_is_whole_and_too_wide_is_a_block_a_row() -> None:
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
    side_by_side = lines(TextTable([name], [False], [["1"]]))
    blocks = lines(TextTable([name, "b"], [False, False], [["1", "2"]]), 20)
    assert side_by_side[0] == r"wei\x1b]0;owned\x07\nnext"
    assert blocks[1].startswith(r"wei\x1b]0;owned\x07\nnext  1")
