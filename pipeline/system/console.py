"""The two consoles: results to standard output, everything else to standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.logging import RichHandler

from sources.errors import LogtwinError

out = Console()
err = Console(stderr=True)


def log_to_console() -> None:
    """What the code logs goes to `err`, where a live display knows how to keep out of its way."""
    handler = RichHandler(console=err, show_path=False, show_time=False, markup=False)
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
        app(list(arguments) if arguments is not None else None, standalone_mode=True, prog_name=name)
    except LogtwinError as error:
        report(error)
        sys.exit(error.exit_code)


def report(error: LogtwinError) -> None:
    """Say on standard error what happened and what to do."""
    err.print(f"[bold red]error[/] {type(error).__name__}: ", end="")
    err.print(str(error), markup=False, highlight=False, soft_wrap=True)
