"""How every verb logs to standard error: options that act as soon as they are read, so no verb has to know them."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperOption

from pipeline.system.console import LogFormat, LogLevel, log_to_console


def _in_format(form: LogFormat) -> None:
    log_to_console(form=form)


def _from_level(level: LogLevel | None) -> None:
    log_to_console(level=level)


def _quietly(is_asked: bool) -> None:
    if is_asked:
        log_to_console(level="warning")


def _asked(
    log_format: Annotated[
        LogFormat, typer.Option(envvar="LOGTWIN_LOG_FORMAT", callback=_in_format, help="json: one object a line")
    ] = "text",
    log_level: Annotated[
        LogLevel | None,
        typer.Option(envvar="LOGTWIN_LOG_LEVEL", callback=_from_level, help="what is logged at least; by default info"),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", callback=_quietly, help="log warnings and errors alone, and show no display")
    ] = False,
) -> None: ...


def log_options() -> list[TyperOption]:
    """The options, made anew for one verb; they are not among its arguments."""
    asked = typer.Typer(add_completion=False)
    asked.command()(_asked)
    found = [one for one in typer.main.get_command(asked).params if isinstance(one, TyperOption)]
    for one in found:
        one.expose_value = False
    return found
