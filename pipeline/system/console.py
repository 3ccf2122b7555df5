"""The two consoles: results to standard output, everything else to standard error. They show no control characters.

A record of the log is a line: text for people, or a JSON object for programs. Who logs an error as an argument gives
the object its facts: log id, offset, condition. `extra={FACTS: {…}}` gives it others.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Final, Literal, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pipeline.system import signals
from pipeline.system.folders import cache_folder
from sources.errors import NO_ROOM, LogtwinError, ReplicaError, StorageUnreachable
from sources.extras import naming_extras
from sources.loss import condition_of
from sources.offsets import LogId
from sources.readable import visible

FACTS: Final = "facts"
WIDE: Final = 240
"""The line width if there is no terminal, as in a file or a scheduler's log: so nothing is cut."""
_JVM_ENDS_WITHIN_S: Final = 2.0
log = logging.getLogger(__name__)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """``2026-11-28T02:12:03.123Z WARNING  message``; a traceback after it has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(f"{_moment(record)} {record.levelname:<8} {record.getMessage()}")


class JsonLines(logging.Formatter):
    """``{"time": …, "level": …, "message": …, "log": …, "offset": …, "condition": …}`` with the keys that are known."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": _moment(record), "level": record.levelname, "message": record.getMessage()}
        told |= facts_of(record)
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps({key: value for key, value in told.items() if value is not None}, default=str)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """The facts of a record: those of the first error among its arguments, or else the first log id."""
    given = record.args if isinstance(record.args, tuple) else ()
    facts: dict[str, Any] = {}
    error = next((one for one in given if isinstance(one, LogtwinError)), None)
    if error is not None:
        condition = condition_of(error)
        facts = {**error.facts(), "condition": None if condition is None else condition.value}
    else:
        facts["log"] = next((str(one) for one in given if isinstance(one, LogId)), None)
    return facts | getattr(record, FACTS, {})


class _Visible(Console):
    """Shows whatever it is given so that only rich itself commands the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for one in super().render(renderable, options):
            yield one if one.control else Segment(visible(one.text, lines=True), one.style)


def console(stream: TextIO, environment: Mapping[str, str], *, stderr: bool = False) -> Console:
    """A console for `stream`; COLUMNS sets its width, as usual."""
    is_known = stream.isatty() or "COLUMNS" in environment
    return _Visible(stderr=stderr, width=None if is_known else WIDE)


out = console(sys.stdout, os.environ)


err = console(sys.stderr, os.environ, stderr=True)


LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_STYLES: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class _Lines(logging.Handler):
    """Prints each record on a line of `err`, however long, where a live display makes room for it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if err.is_terminal:
                style = _STYLES.get(record.levelname, "") if not is_json() else ""
                err.print(Text(line, style), soft_wrap=True)  # of its own: print would style a live display
            else:
                _write(f"{visible(line, lines=True)}\n")
        except OSError:
            return  # a full disk, or nobody reads any more: where could that be said?
        except Exception:  # noqa: BLE001 - as every handler of logging does
            self.handleError(record)


def _write(text: str) -> None:
    """Write to standard error, and keep nothing of what a full disk does not take.

    Rich would try all of that again with each line, and Python at its end, which makes the exit code 120.
    """
    if err.file is sys.__stderr__:
        os.write(2, text.encode(errors="backslashreplace"))
    else:
        err.file.write(text)


_HANDLER: Final = _Lines()
_HANDLER.setFormatter(TextLines())
_HANDLER.addFilter(lambda record: "py4j" not in Path(record.pathname).parts)


def log_to_console(*, form: LogFormat | None = None, level: LogLevel | None = None) -> None:
    """Send log records to `err`, from now on with this format or level; what is None stays."""
    if form is not None:
        _HANDLER.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_HANDLER)
        root.setLevel(logging.INFO)
    if level is not None:
        root.setLevel(level.upper())
    logging.getLogger("pyspark").setLevel("WARNING")
    # An error in a batch comes back with its query, and we decide what a broken connection means: each is reported
    # once, where it is handled. py4j logs some in its own name, and some in that of all.
    for name in ("py4j", "kafka"):
        logging.getLogger(name).setLevel("CRITICAL")


def is_json() -> bool:
    """Whether log records are JSON."""
    return isinstance(_HANDLER.formatter, JsonLines)


def shows_live() -> bool:
    """Whether somebody sits before a terminal who wants to see what goes on."""
    return err.is_terminal and not is_json() and log.isEnabledFor(logging.INFO)


def run(app: Callable[..., Any], arguments: Sequence[str] | None, name: str | None = None) -> None:
    """Run one verb with `arguments` or those of the process, and leave the process with its exit code."""
    log_to_console()
    with signals.unwinding():
        try:
            with naming_extras():
                app(list(arguments) if arguments is not None else None, standalone_mode=True, prog_name=name)
        except LogtwinError as error:
            report(error)
            sys.exit(error.exit_code)
        except BaseException as error:
            by = signals.came()
            if by is not None and not _is_end_of_its_own(error, by):
                signals.leave(by)  # whatever it broke
            known = ended_behind(error) or _without_room(error)
            if known is not None:
                report(known)
                sys.exit(known.exit_code)
            if is_json() and isinstance(error, Exception):
                log.critical("a defect of logtwin: please report it", exc_info=error)
                sys.exit(1)
            raise


def _is_end_of_its_own(error: BaseException, by: signal.Signals) -> bool:
    return isinstance(error, SystemExit) and error.code != 128 + by


def _without_room(error: BaseException) -> StorageUnreachable | None:
    """The error for a full disk that nobody else has met, mostly the one that standard output goes to; else None.

    What could not be written to there is forgotten, or the interpreter would try it again at its end.
    """
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return None
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return StorageUnreachable(
        "a file, or what standard output goes to, cannot be written",
        expected="room for it",
        found=error,
        hint="Make room, and run it again. What was done stays done.",
    )


def report(error: LogtwinError) -> None:
    """Say on standard error what happened and what to do."""
    if err.is_terminal and not is_json():
        err.print(f"[bold red]error[/] {type(error).__name__}: ", end="")
        show(str(error), to=err)
    else:
        told = (type(error).__name__, error)
        _HANDLER.emit(logging.LogRecord(__name__, logging.ERROR, __file__, 0, "%s: %s", told, None))  # at any level


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


def spark_ended(code: int | None) -> ReplicaError:
    """Spark's JVM has ended under a process that still needs it: killed, or out of memory."""
    return ReplicaError(
        "Spark has ended",
        found=None if code is None else f"exit code {code}",
        hint=f"{cache_folder() / 'spark.log'} has its last words; spark.driver.memory below [spark] gives it more than "
        "1g. Start it again: what is committed stays, and it goes on from there.",
    )


def ended_behind(error: BaseException) -> ReplicaError | None:
    """The error behind `error` if the JVM of this process has ended, whose calls fail in many ways; else None."""
    spark = sys.modules.get("pyspark.core.context")  # a process without it has no JVM
    gateway = None if spark is None else spark.SparkContext._gateway
    protocol = sys.modules.get("py4j.protocol")
    if gateway is None or protocol is None or not isinstance(error, protocol.Py4JError | ConnectionError):
        return None
    java = gateway.proc
    if java is None:  # it is spark-submit's, which started us
        return spark_ended(None) if isinstance(error, protocol.Py4JNetworkError) else None
    try:
        code = java.wait(_JVM_ENDS_WITHIN_S)  # its socket closes before it is gone
    except TimeoutExpired:
        return None
    return spark_ended(code)
