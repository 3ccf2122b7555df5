"""The verb that reports; `pipeline.cli` makes it ``logtwin report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline import config as configuration
from pipeline.cli_options import RequiredConfig
from pipeline.console import out

app = typer.Typer()


@app.command()
def report(
    config: RequiredConfig,
    output: Annotated[Path, typer.Option(help="the file to write; one that is there is replaced")] = Path(
        "report.html"
    ),
) -> None:
    """Write a page that shows the replica at a glance: what is complete, how fast, who is behind, what waits.

    One HTML file that needs no network, for any browser, phones too.
    """
    from pipeline.report.made import check_folder, write_report
    from pipeline.session import session_for

    settings = configuration.load(config).with_logs(str(config))
    check_folder(output)
    write_report(session_for(settings), settings, output)
    out.print(str(output), markup=False, highlight=False, soft_wrap=True)
