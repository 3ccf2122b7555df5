"""How wide the consoles are, and what a log looks like where nobody sits before it."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from pipeline.system.console import console

PROJECT = Path(__file__).parents[2]
LONG = "x" * 150
FORGED = "no\n12:00 all is well\x1b[2J [/] \u202e"
SHOWN = r"no\n12:00 all is well\x1b[2J [/] \u202e"
LOGGING = f"""
import logging
from pipeline.system.console import log_to_console
log_to_console()
logging.getLogger("any").warning("kafka/prod/orders: %s {LONG}", {FORGED!r})
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "is_cut"),
    [(io.StringIO(), {}, False), (io.StringIO(), {"COLUMNS": "80"}, True), (Terminal(), {"COLUMNS": "80"}, True)],
)
def test_without_a_terminal_nothing_is_cut(
    stream: io.StringIO, environment: dict[str, str], is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a pipe, the log of a scheduler. Whoever says how wide it is is heard, as everywhere."""
    monkeypatch.delenv("COLUMNS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = console(stream, environment)
    made.file = stream
    table = Table(box=None)
    table.add_column(LONG, no_wrap=True)
    made.print(table)
    assert (LONG not in stream.getvalue()) is is_cut


def test_a_line_of_the_log_is_one_line_whatever_a_broker_says() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGING], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stderr == f"WARNING  kafka/prod/orders: {SHOWN} {LONG}\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_nothing_that_is_shown_commands_the_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich's own colours do."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if is_terminal else io.StringIO()
    made = console(stream, {"COLUMNS": "200"})
    made.file = stream
    table = Table(box=None)
    table.add_column(Text(FORGED))
    table.add_row(Text(FORGED))
    for one in (table, Text(FORGED, style="bold")):
        made.print(one)
    made.print(FORGED, markup=False)
    said = stream.getvalue()
    assert "\x1b[2J" not in said
    assert "\u202e" not in said
    assert r"\x1b[2J" in said
