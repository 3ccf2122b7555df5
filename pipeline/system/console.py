"""The two consoles: results to standard output, everything else to standard error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TextIO

import typer
from rich.console import Console
from rich.logging import RichHandler

from sources.errors import LogtwinError
from sources.extras import naming_extras

WIDE: Final = 240
"""Characters of a line where no terminal says how many it has, in a file or in a scheduler's log: nothing is cut."""


def console(stream: TextIO, environment: Mapping[str, str], *, stderr: bool = False) -> Console:
    """One for what `stream` is; COLUMNS says how wide, as everywhere."""
    is_known = stream.isatty() or "COLUMNS" in environment
    return Console(stderr=stderr, width=None if is_known else WIDE)


out = console(sys.stdout, os.environ)
err = console(sys.stderr, os.environ, stderr=True)


class _Lines(logging.Handler):
    """A record a line, however long: for who reads a log, and not a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(f"{record.levelname:<8} {self.format(record)}", markup=False, highlight=False, soft_wrap=True)


def log_to_console() -> None:
    """What the code logs goes to `err`, where a live display knows how to keep out of its way."""
    rich = partial(RichHandler, console=err, show_path=False, show_time=False, markup=False)
    handler: logging.Handler = rich() if err.is_terminal else _Lines()
    logging.basicConfig(level="INFO", format="%(message)s", handlers=[handler])
    logging.getLogger("pyspark").setLevel("WARNING")
    # What a batch raises comes back with its query, and what breaks a connection is ours to judge: it is said once,
    # where it is decided what it means.
    for name in ("py4j", "kafka"):
        logging.getLogger(name).setLevel("CRITICAL")


def run(app: typer.Typer, arguments: Sequence[str] | None, name: str | None = None) -> None:
    """Run one verb, of these arguments or the process's, and leave the process with its exit code."""
    log_to_console()
    try:
        with naming_extras():
            app(list(arguments) if arguments is not None else None, standalone_mode=True, prog_name=name)
    except LogtwinError as error:
        report(error)
        sys.exit(error.exit_code)


def report(error: LogtwinError) -> None:
    """Say on standard error what happened and what to do."""
    err.print(f"[bold red]error[/] {type(error).__name__}: ", end="")
    err.print(str(error), markup=False, highlight=False, soft_wrap=True)
