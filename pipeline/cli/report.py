"""The verb that reports; `pipeline.cli.app` makes it ``logtwin report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.options import QUERY, RequiredConfig, run_alone
from pipeline.sql.serve.wire import REPORT
from pipeline.system.console import err, show
from sources.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer()

_LITTLE_BYTES = 1 << 30
"""For less than this, starting the session and planning its queries take longer than reading the data."""


def main(arguments: Sequence[str] | None = None) -> None:
    """``logtwin report`` alone."""
    run_alone(report, arguments)


@app.command(rich_help_panel=QUERY)
def report(
    config: RequiredConfig,
    output: Annotated[Path, typer.Option(help="the file to write; an existing one is replaced")] = Path("report.html"),
) -> None:
    """Write a page that shows the replica at a glance: what is complete, how fast, who is behind, what waits.

    It is one HTML file that needs no network, for any browser, even on phones. A server of logtwin sql makes it faster.
    """
    from pipeline.sql.serve.client import answered

    _check_folder(output)
    if not answered(config, REPORT, output=output):
        _make(config, output)
    show(str(output))


def _make(config: Path, output: Path) -> None:
    from pipeline.config import configuration
    from pipeline.report.run import made_report
    from pipeline.spark.session import session_for, without_session
    from pipeline.sql.output import destination

    settings = configuration.load(config).with_logs(str(config))
    with err.status("reading the small tables …") as status:

        def session(size_bytes: int) -> SparkSession:
            status.update("starting Spark …")
            return session_for(settings, archived=True, is_brief=size_bytes <= _LITTLE_BYTES).newSession()

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
