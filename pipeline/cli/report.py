"""The verb that reports; `pipeline.cli.app` makes it ``logtwin report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import RequiredConfig
from pipeline.config import configuration
from pipeline.sql.wire import REPORT
from pipeline.system.console import err, out
from pipeline.verb_groups import QUERY
from sources.errors import ConfigurationError

app = typer.Typer()


@app.command(rich_help_panel=QUERY)
def report(
    config: RequiredConfig,
    output: Annotated[Path, typer.Option(help="the file to write; one that is there is replaced")] = Path(
        "report.html"
    ),
) -> None:
    """Write a page that shows the replica at a glance: what is complete, how fast, who is behind, what waits.

    One HTML file that needs no network, for any browser, phones too. A server of logtwin sql makes it at once.
    """
    from pipeline.sql.client import answered
    from pipeline.sql.output import destination

    settings = configuration.load(config).with_logs(str(config))
    _check_folder(output)
    if not answered(config, REPORT, output=output):
        from pipeline.report.run import made_report
        from pipeline.spark.session import session_for

        with err.status("starting Spark …") as status:
            made = made_report(session_for(settings, archived=True), settings, status.update)
        with destination(output) as sink:
            sink.write(made)
    out.print(str(output), markup=False, highlight=False, soft_wrap=True)


def _check_folder(output: Path) -> None:
    """Raises ConfigurationError where the folder of `output` is not there: before minutes are spent on the queries."""
    if not output.absolute().parent.is_dir():
        raise ConfigurationError(
            f"the report {output} cannot be written",
            expected="a file in a folder that is there",
            found="there is no such folder",
            hint="Give another one with --output.",
        )
