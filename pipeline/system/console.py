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
"""The line width if there is no terminal, as in a file or a scheduler's log: so nothing is cut."""


def console(stream: TextIO, environment: Mapping[str, str], *, stderr: bool = False) -> Console:
    """A console for `stream`; COLUMNS sets its width, as usual."""
    is_known = stream.isatty() or "COLUMNS" in environment
    return Console(stderr=stderr, width=None if is_known else WIDE)


out = console(sys.stdout, os.environ)
err = console(sys.stderr, os.environ, stderr=True)


class _Lines(logging.Handler):
    """Prints each record on one line, however long, for logs that are not on a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(f"{record.levelname:<8} {self.format(record)}", markup=False, highlight=False, soft_wrap=True)


def log_to_console() -> None:
    """Send log records to `err`, where a live display makes room for them."""
    rich = partial(RichHandler, console=err, show_path=False, show_time=False, markup=False)
    handler: logging.Handler = rich() if err.is_terminal else _Lines()
    logging.basicConfig(level="INFO", format="%(message)s", handlers=[handler])
    logging.getLogger("pyspark").setLevel("WARNING")
    # An error in a batch comes back with its query, and we decide what a broken connection means: each is reported
    # once, where it is handled.
    for name in ("py4j", "kafka"):
        logging.getLogger(name).setLevel("CRITICAL")


def run(app: typer.Typer, arguments: Sequence[str] | None, name: str | None = None) -> None:
    """Run one verb with `arguments` or those of the process, and leave the process with its exit code."""
    log_to_console()
    try:
        with naming_extras():
            app(list(arguments) if arguments is not None else None, standalone_mode=True, prog_name=name)
    except LogtwinError as error:
        report(error)
        sys.exit(error.exit_code)


def report(error: LogtwinError) -> None:
    """Print on standard error what happened and what to do."""
    err.print(f"[bold red]error[/] {type(error).__name__}: ", end="")
    err.print(str(error), markup=False, highlight=False, soft_wrap=True)
