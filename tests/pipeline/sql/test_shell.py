"""The prompt, as somebody's keys drive it; answers are those of a small replica."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pipeline.inspect.tables import listed, relation_table
from pipeline.sql import shell
from pipeline.sql.reader import Reader
from pipeline.sql.shell import Shell, known_names
from sinks.tables import LOG_SCHEMA
from sinks.views.definition import VIEWS, view
from sources.errors import ReplicaError

pytestmark = pytest.mark.spark

CTRL_C, CTRL_D, ENTER, UP = "\x03", "\x04", "\r", "\x1b[A"


@pytest.fixture
def typed(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    monkeypatch.setattr(shell, "cache_folder", lambda: tmp_path)
    return Typed(lambda: reader, capsys)


class Typed:
    """Call it with lines, the last of which leaves: what the shell answers, and what it says besides."""

    def __init__(self, opening: Callable[[], Reader], capsys: pytest.CaptureFixture[str]) -> None:
        self._opening = opening
        self._capsys = capsys

    def __call__(self, *lines: str) -> tuple[str, str]:
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text("".join(line + ENTER for line in lines))
            Shell(self._opening, "csv").run()
        return self._capsys.readouterr()


def test_a_statement_may_have_many_lines_or_share_one_and_ends_with_its_semicolon(typed: Typed) -> None:
    out, err = typed("SELECT count(*) AS n", "FROM log", ";", r"\q")
    assert out == "n\n5\n"
    assert "1 row, " in err
    assert typed("CREATE TEMPORARY VIEW evens AS SELECT 2 AS n; SELECT n FROM evens;", r"\q")[0] == "n\n2\n"


def test_what_is_wrong_is_said_and_the_prompt_stays(typed: Typed) -> None:
    out, err = typed("SELECT * FROM lok;", "DELETE FROM log;", "SELECT 1 AS n;", r"\q")
    assert out == "n\n1\n"
    assert "there is no table or view lok" in err
    assert "Did you mean log?" in err
    assert "this session only reads" in err
    assert "Traceback" not in err


def test_control_c_forgets_what_is_typed(typed: Typed) -> None:
    assert typed(f"SELECT 'gone{CTRL_C}SELECT 1 AS n;", r"\q")[0] == "n\n1\n"


@pytest.mark.parametrize("leaving", [r"\q", "quit", "exit;", CTRL_D])
def test_it_can_be_left(typed: Typed, leaving: str) -> None:
    assert typed(leaving)[0] == ""


def test_help_and_what_there_is(typed: Typed) -> None:
    out, _ = typed("help", r"\d", r"\d log", r"\q")
    assert r"\q, Ctrl-D  leave" in out
    assert view("messages").comment in out
    assert f'\noffset,bigint,"{LOG_SCHEMA.field("offset").metadata[b"comment"].decode()}"\n' in out


def test_the_prompt_does_not_wait_for_the_replica(
    typed: Typed, reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    is_open = threading.Event()

    def opening() -> Reader:
        assert is_open.wait(60)
        return reader

    assert r"\q, Ctrl-D  leave" in Typed(opening, capsys)("help", r"\q")[0]
    threading.Timer(0.5, is_open.set).start()
    assert Typed(opening, capsys)("SELECT 1 AS n;", r"\q")[0] == "n\n1\n"


@pytest.mark.parametrize("lines", [(), ("SELECT 1;",), ("SELECT 1;", "SELECT")])
def test_where_there_is_no_replica_it_ends(
    typed: Typed, capsys: pytest.CaptureFixture[str], lines: tuple[str, ...]
) -> None:
    with pytest.raises(ReplicaError, match="no replica"):
        Typed(Mock(side_effect=ReplicaError("no replica")), capsys)(*lines)


def test_names_are_known_those_of_the_session_too(reader: Reader) -> None:
    reader.spark.sql("CREATE OR REPLACE TEMPORARY VIEW ledger_of_mine AS SELECT 1 AS mine")
    names = known_names(reader)
    assert [one.word for one in names.suggestions("SELECT * FROM led")] == ["ledger", "ledger_of_mine"]
    assert next(one.word for one in names.suggestions("SELECT min", " FROM ledger_of_mine")) == "mine"
    assert "parse_json" in [one.word for one in names.suggestions("SELECT parse_j")]
    assert [one.word for one in names.suggestions("SELEC")] == ["SELECT"]


def test_what_was_typed_before_comes_back(typed: Typed, tmp_path: Path) -> None:
    typed("SELECT 1 AS n;", CTRL_D)
    assert typed(UP, CTRL_D)[0] == "n\n1\n"
    # queries may name what is in messages
    assert stat.S_IMODE((tmp_path / "sql_history").stat().st_mode) == 0o600


def test_d_lists_what_there_is_as_a_table_with_the_replica_s_own() -> None:
    """In columns that a terminal does not cut: each has a name, a kind, and what it is."""
    table = relation_table(listed(), [*VIEWS, "log", "orders"])
    names, kinds, comments = (list(column.cells) for column in table.columns)
    assert [column.header for column in table.columns] == ["name", "kind", "what it is"]
    assert names[:2] == list(VIEWS[:2])
    rows = {name: (kind, str(comment)) for name, kind, comment in zip(names, kinds, comments, strict=True)}
    assert rows["messages"] == ("view", view("messages").comment)
    assert rows["log"][0] == "table"
    assert rows["orders"] == ("table", "typed table of this replica")
