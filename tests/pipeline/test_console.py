"""How wide the consoles are, and what a log looks like where nobody sits before it."""

import io
import json
import os
import re
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
import logging, sys
from pipeline.system.console import log_to_console
from sources.errors import BelowMinimum, MasterSilent
from sources.offsets import LogId
log_to_console(form=sys.argv[1], level=sys.argv[2])
log = logging.getLogger("any")
log.info("%s is fine", LogId.parse("rocketmq/b"))
log.warning("kafka/prod/orders: %s {LONG}", {FORGED!r})
log.error("%s; again", BelowMinimum("gone", log="rocketmq/a", offset=7, found=9))
log.error("%s", MasterSilent("no answer", log="rocketmq/a"))
exec(compile("logging.error('a connection broke')", "/any/py4j/java_gateway.py", "exec"))  # py4j, in the name of all
"""
TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, environment: dict[str, str], *all_of_it: object, **how: bool) -> str:
    made = console(stream, environment)
    made.file = stream
    for one in all_of_it:
        made.print(one, **how)  # type: ignore[arg-type]  # Rich's own options
    return stream.getvalue()


def a_table(text: str | Text) -> Table:
    table = Table(box=None)
    table.add_column(text, no_wrap=True)
    table.add_row(text)
    return table


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
    assert (LONG not in shown(stream, environment, a_table(LONG))) is is_cut


def logged(form: str, level: str) -> list[str]:
    command = [sys.executable, "-c", LOGGING, form, level]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stderr.splitlines()


def test_a_line_of_the_log_has_a_time_and_is_one_line_whatever_a_broker_says() -> None:
    assert [re.sub(TIME, "T", line) for line in logged("text", "warning")] == [
        f"T WARNING  kafka/prod/orders: {SHOWN} {LONG}",
        "T ERROR    rocketmq/a at offset 7: gone; found 9; again",
        "T ERROR    rocketmq/a: no answer",
    ]


def test_a_line_for_programs_is_an_object_that_says_which_log_where_and_what_it_is() -> None:
    fine, forged, lost, silent = (json.loads(line) for line in logged("json", "info"))
    assert all(re.fullmatch(TIME, one["time"]) for one in (fine, forged, lost, silent))
    assert (fine["level"], fine["log"]) == ("INFO", "rocketmq/b")
    assert forged["message"] == f"kafka/prod/orders: {FORGED} {LONG}"
    found = {"log": "rocketmq/a", "offset": 7, "type": "BelowMinimum", "condition": "below_minimum", "found": "9"}
    assert lost.items() >= found.items()
    assert (silent["type"], "condition" in silent, "offset" in silent) == ("MasterSilent", False, False)


@pytest.mark.job
def test_a_full_disk_behind_the_output_is_one_line_and_behind_the_log_nothing() -> None:
    """And none of the log is tried again, which would change the exit code."""
    command = [sys.executable, "-m", "pipeline", "--version"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(command, cwd=PROJECT, env=environment, stdout=full, stderr=-1, text=True, check=False)
        assert (said.returncode, len(said.stderr.splitlines()), "No space left" in said.stderr) == (6, 1, True), said
        command[-1:] = ["status", "--config", "/nowhere"]
        assert subprocess.run(command, cwd=PROJECT, env=environment, stderr=full, check=False).returncode == 2


@pytest.mark.parametrize("is_terminal", [False, True])
def test_nothing_that_is_shown_commands_the_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich's own colours do."""
    monkeypatch.setenv("TERM", "xterm")
    stream, wide = Terminal() if is_terminal else io.StringIO(), {"COLUMNS": "200"}
    shown(stream, wide, a_table(Text(FORGED)), Text(FORGED, style="bold"))
    said = shown(stream, wide, FORGED, markup=False)
    assert "\x1b[2J" not in said
    assert "\u202e" not in said
    assert r"\x1b[2J" in said
