"""The two consoles: results to standard output, everything else to standard error. They show no control characters."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from subprocess import TimeoutExpired
from typing import Any, Final, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.logging import RichHandler
from rich.segment import Segment

from pipeline.system.folders import cache_folder
from sources.errors import LogtwinError, ReplicaError
from sources.extras import naming_extras
from sources.visible import visible

WIDE: Final = 240
"""The line width if there is no terminal, as in a file or a scheduler's log: so nothing is cut."""
_JVM_ENDS_WITHIN_S: Final = 2.0


class _Visible(Console):
    """Whatever it is given to show, only rich itself commands the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for one in super().render(renderable, options):
            yield one if one.control else Segment(visible(one.text, lines=True), one.style)


def console(stream: TextIO, environment: Mapping[str, str], *, stderr: bool = False) -> Console:
    """A console for `stream`; COLUMNS sets its width, as usual."""
    is_known = stream.isatty() or "COLUMNS" in environment
    return _Visible(stderr=stderr, width=None if is_known else WIDE)


out = console(sys.stdout, os.environ)


err = console(sys.stderr, os.environ, stderr=True)


class OneLine(logging.Formatter):
    """A record's message as one line; a traceback after it has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))


class _Lines(logging.Handler):
    """Prints each record on one line, however long, for logs that are not on a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        show(f"{record.levelname:<8} {self.format(record)}", to=err)


def log_to_console() -> None:
    """Send log records to `err`, where a live display makes room for them."""
    rich = partial(RichHandler, console=err, show_path=False, show_time=False, markup=False)
    handler: logging.Handler = rich() if err.is_terminal else _Lines()
    handler.setFormatter(OneLine())
    logging.basicConfig(level="INFO", handlers=[handler])
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
    except Exception as error:
        known = ended_behind(error)
        if known is None:
            raise
        report(known)
        sys.exit(known.exit_code)


def report(error: LogtwinError) -> None:
    """Print on standard error what happened and what to do."""
    err.print(f"[bold red]error[/] {type(error).__name__}: ", end="")
    show(str(error), to=err)


def show(text: str, *, style: str | None = None, to: Console = out) -> None:
    """Print `text` as it is: nothing in it is markup, and a line is one line however long."""
    to.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def show_json(told: Mapping[str, Any]) -> None:
    """Print an object as JSON; what JSON does not know of it has a method `as_json`."""
    out.print_json(json.dumps(told, default=lambda one: one.as_json()))


def answer(as_json: bool, told: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print `told` as `show_json` does, or else `lines`."""
    if as_json:
        show_json(told)
    else:
        show("\n".join(lines))


def spark_ended(code: int) -> ReplicaError:
    """Spark's JVM has ended under a process that still needs it: killed, or out of memory."""
    return ReplicaError(
        "Spark has ended",
        found=f"exit code {code}",
        hint=f"{cache_folder() / 'spark.log'} has its last words; spark.driver.memory below [spark] gives it more than "
        "1g. Start it again: what is committed stays, and it goes on from there.",
    )


def ended_behind(error: BaseException) -> ReplicaError | None:
    """What is behind `error`, if the JVM of this process has ended: the calls of it fail in many ways; else None."""
    spark = sys.modules.get("pyspark.core.context")  # a process without it has no JVM
    gateway = None if spark is None else spark.SparkContext._gateway
    java = None if gateway is None else gateway.proc
    protocol = sys.modules.get("py4j.protocol")
    if java is None or protocol is None or not isinstance(error, protocol.Py4JError | ConnectionError):
        return None
    try:
        code = java.wait(_JVM_ENDS_WITHIN_S)  # its socket closes before it is gone
    except TimeoutExpired:
        return None
    return spark_ended(code)
