"""The verbs for people who query: a prompt, statements, a report; `pipeline.cli.app` makes them ``logtwin <verb>``."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.options import QUERY, RequiredConfig, log_ids
from pipeline.sql.output import Format, destination
from pipeline.sql.serve.meeting import REPORT
from pipeline.system.console import err, out, show
from sources.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.sql.reader import Reader


app = typer.Typer()

_SLOW_S = 3.0
_LITTLE_BYTES = 1 << 30
"""For less than this, starting the session and planning its queries take longer than reading the data."""


@app.command(rich_help_panel=QUERY)
def sql(
    config: RequiredConfig,
    statements: Annotated[str | None, typer.Option("-e", metavar="SQL", help="run these statements")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", metavar="FILE", help="run the statements of this file; - is standard input")
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="format of the results; a table has the first 1000 rows")
    ] = "table",
    output: Annotated[Path | None, typer.Option(help="file for the results; replaced once all is done")] = None,
    log: Annotated[
        str | None,
        typer.Option(help="with --as-of-…: id of the log; not needed if there is only one", autocompletion=log_ids),
    ] = None,
    as_of_offset: Annotated[int | None, typer.Option(min=0, help="show one log as it was up to this offset")] = None,
    as_of_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="show one log as its master had it then: ISO 8601, UTC unless it has a zone"),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="serve your other processes' -e, -f and standard input until Ctrl-C")
    ] = False,
) -> None:
    """Query the replica in Spark SQL: its tables, and views such as messages and consumer_lag (logtwin tables all).

    Without -e and -f it opens a prompt, where help lists the commands. Only results go to standard output.

    It only reads: SELECT, WITH, SHOW, DESCRIBE, EXPLAIN, SET and CREATE TEMPORARY VIEW are run; anything else is
    refused before the first statement runs. Times are ISO 8601, UTC; binary is base64; in csv and json nested values
    are JSON; in parquet variants are JSON, too.
    """
    is_past = (log, as_of_offset, as_of_time) != (None, None, None)
    if serve:
        if is_past or (statements, file, output) != (None, None, None):
            raise typer.BadParameter(
                "takes no statements, no output and no point in time: the clients ask", param_hint="--serve"
            )
        _serve(config)
        return
    text = _statements(statements, file)
    if text is None and output is not None:
        raise typer.BadParameter("needs -e or -f", param_hint="--output")
    from pipeline.sql.serve.client import answered

    width = out.width if output is None and sys.stdout.isatty() else None
    if text is not None and not is_past and answered(config, form, text=text, output=output, width=width):
        return

    def opened() -> Reader:
        from pipeline.config import configuration
        from pipeline.sql.reader import Past, Reader, past_line

        settings = configuration.load(config)
        reader = Reader.opened(settings, Past.asked(settings, log, as_of_offset, as_of_time), text)
        if reader.as_of is not None:
            show(past_line(reader.as_of), to=err)
        return reader

    if text is None:
        from pipeline.sql.shell import Shell

        Shell(opened, form).run()
        return
    began_s = time.monotonic()
    with err.status("opening the replica …"):
        reader = opened()
    opened_s = time.monotonic() - began_s
    from pipeline.sql.reader import run_text

    with destination(output) as sink:
        run_text(reader, text, form, sink, width)
    if err.is_terminal and opened_s >= _SLOW_S and not is_past:
        show(f"Spark took {opened_s:.0f} s to start: while logtwin sql --serve runs elsewhere, it need not", to=err)


def _serve(config: Path) -> None:
    from pipeline.config import configuration
    from pipeline.spark.session import session_for
    from pipeline.sql.reader import Reader, run_text
    from pipeline.sql.serve.server import WARM_UP, SQLServer, listening, reserved
    from pipeline.system.signals import stop_by_signal

    settings = configuration.load(config)
    with reserved(config) as path:
        with err.status("opening the replica …"):
            spark = session_for(settings)
            run_text(Reader.over(spark, settings, None, WARM_UP), WARM_UP, "table", io.BytesIO(), None)
        with listening(path) as listener:
            server = SQLServer(spark, settings.warehouse, listener)
            with stop_by_signal(server.request_stop, "ends"):
                err.print("serving logtwin sql -e, -f and standard input; Ctrl-C ends it", highlight=False)
                server.run()


def _statements(given: str | None, file: Path | None) -> str | None:
    """The SQL to run; None for an interactive shell."""
    if given is not None and file is not None:
        raise typer.BadParameter("either statements or a file of them", param_hint="-e, -f")
    if given is not None:
        return given
    if file is None and sys.stdin.isatty():
        return None
    if file is None or str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}", param_hint="-f") from error


@app.command(rich_help_panel=QUERY)
def report(
    config: RequiredConfig,
    output: Annotated[
        Path | None, typer.Option(help="the file to write; an existing one is replaced", show_default="report.html")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="keep a page current until Ctrl-C, at an address for your browser alone")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="with --serve: its port on 127.0.0.1; a free one by default")
    ] = None,
) -> None:
    """Write a page that shows the replica at a glance: what is complete, how fast, who is behind, what waits.

    It is one HTML file that needs no network, for any browser, even on phones. A server of logtwin sql makes it faster.
    With --serve it is a page that stays open: it shows what logtwin status says, by itself, and a report when asked.
    """
    if serve:
        if output is not None:
            raise typer.BadParameter("writes no file", param_hint="--serve")
        _serve_page(config, port or 0)
        return
    if port is not None:
        raise typer.BadParameter("needs --serve", param_hint="--port")
    from pipeline.sql.serve.client import answered

    output = output or Path("report.html")
    _check_folder(output)
    if not answered(config, REPORT, output=output):
        _make(config, output)
    show(str(output))


def _serve_page(file: Path, port: int) -> None:
    from pipeline.config import configuration
    from pipeline.report.serve import PageServer
    from pipeline.spark.session import without_session
    from pipeline.system.signals import stop_by_signal

    server = PageServer(file, without_session(configuration.load(file).with_logs(str(file))), port)
    with stop_by_signal(server.request_stop, "ends"):
        show(server.url)
        server.run()


def _make(config: Path, output: Path) -> None:
    from pipeline.config import configuration
    from pipeline.report.run import made_report
    from pipeline.spark.session import session_for, without_session
    from pipeline.sql.output import destination

    settings = configuration.load(config).with_logs(str(config))
    with err.status("reading the small tables …") as status:

        def session(size_bytes: int) -> SparkSession:
            return session_for(settings, is_brief=size_bytes <= _LITTLE_BYTES).newSession()

        made = made_report(without_session(settings), session, status.update)
    with destination(output) as sink:
        sink.write(made)


def _check_folder(output: Path) -> None:
    """Raises ConfigurationError if the folder of `output` does not exist, before minutes are spent on the queries."""
    if not output.absolute().parent.is_dir():
        raise ConfigurationError(
            f"the report {output} cannot be written",
            expected="a file in a folder that is there",
            found="there is no such folder",
            hint="Give another one with --output.",
        )
