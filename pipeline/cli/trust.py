"""The verbs that prove a replica and heal it; `pipeline.cli.app` makes them ``logtwin <verb>``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.options import (
    PROVE,
    AsJson,
    OneLog,
    RequiredConfig,
    VerbGroups,
    incident_ids,
    log_ids,
    open_incident_ids,
)
from pipeline.config import configuration
from pipeline.system.console import answer, err, out, show, show_json
from sources.errors import LogtwinError

if TYPE_CHECKING:
    from pipeline.inspect.incidents import Incidents

app = typer.Typer()
incidents = typer.Typer(
    cls=VerbGroups, help="List, explain and accept what was lost, damaged or found to differ.", no_args_is_help=True
)
app.add_typer(incidents, name="incidents", rich_help_panel=PROVE)

_AN_ID = "the incident's id, or its beginning"
IncidentId = Annotated[str, typer.Argument(metavar="ID", help=_AN_ID, autocompletion=incident_ids)]
OpenIncidentId = Annotated[str, typer.Argument(metavar="ID", help=_AN_ID, autocompletion=open_incident_ids)]


@incidents.command("list")
def list_incidents(
    config: RequiredConfig,
    log: OneLog = None,
    include_ended: Annotated[bool, typer.Option("--all", help="include healed and closed ones")] = False,
    as_json: AsJson = False,
) -> None:
    """List the open incidents."""
    from pipeline.inspect.incidents import incident_lines

    found = _incidents(config, log)
    listed = found.all() if include_ended else found.open()
    none = "no incidents" if include_ended else "no open incidents"
    answer(as_json, {"incidents": listed}, incident_lines(listed) if listed else [none])


@incidents.command("explain")
def explain_incident(name: IncidentId, config: RequiredConfig, log: OneLog = None) -> None:
    """Explain an incident: what happened, what is missing, what is kept, and which command heals it."""
    from pipeline.inspect.incidents import explanation_block

    out.print(explanation_block(_incidents(config, log).explain(name), str(config)))


def _incidents(config: Path, log: str | None) -> Incidents:
    from pipeline.config.found import found_now
    from pipeline.inspect.incidents import Incidents
    from pipeline.spark.session import without_session

    return Incidents(found_now(without_session(configuration.load(config).only(log, str(config)))), str(config))


@incidents.command("close")
def close_incident(
    name: OpenIncidentId,
    config: RequiredConfig,
    note: Annotated[str, typer.Option(help="why the loss is accepted; kept with the incident")],
    log: OneLog = None,
) -> None:
    """Accept a loss for good: the range stays missing, but the incident is closed."""
    from pipeline.config.found import found_now
    from pipeline.inspect.incidents import Incidents
    from pipeline.spark.session import session_for

    settings = configuration.load(config).only(log, str(config))
    spark = session_for(settings, writes=True)
    row = Incidents(found_now(settings), str(config)).close(spark, name, note).row
    show(f"{row.id}: {row.state.value}, {row.note}")


@app.command(rich_help_panel=PROVE)
def rebuild(
    config: RequiredConfig,
    log: Annotated[
        str, typer.Option("--log", help="id of a log or topic of the configuration", autocompletion=log_ids)
    ],
    to: Annotated[Path, typer.Option("--to", help="directory for the segment files, empty or new")],
    file_size_bytes: Annotated[
        int | None, typer.Option(min=1, help="file size if the log does not show it; for a topic the largest size")
    ] = None,
    zero_holes: Annotated[
        bool,
        typer.Option("--zero-holes", help="write zeros for holes of the replica; for a topic leave their offsets out"),
    ] = False,
    with_epochs: Annotated[
        bool,
        typer.Option("--with-epochs", help="for a topic: write its leader epochs, too; only for the very same topic"),
    ] = False,
) -> None:
    """Write the master's segment files from the tables, each range proven by its checksum.

    For RocketMQ byte for byte; for a topic every record, in new batches, with a folder for each partition.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from pipeline.config.found import found_now
    from pipeline.operate.rebuild import opened
    from pipeline.spark.session import session_for

    settings = configuration.load(config).only(log, str(config))
    spark = session_for(settings)
    source = opened(spark, found_now(settings), log, with_epochs=with_epochs)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=source.size_bytes)
        made = source.write(
            to, file_size_bytes, zero_holes=zero_holes, on_written=lambda count: progress.advance(task, count)
        )
    for line in made:
        show(line.text(to))


@app.command(rich_help_panel=PROVE)
def repair(
    config: RequiredConfig,
    log: OneLog = None,
    accept_master: Annotated[
        bool, typer.Option("--accept-master", help="the master is right even if it is empty, or has nothing in common")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="start even if a job replicates the log; that job loses it")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and change nothing")] = False,
) -> None:
    """Bring a replica that differs from its master back to the last point that both share.

    Rows beyond it go to the table removed. Damaged ranges of the replica itself are taken out, and read from the master
    again. It can be killed and run again at any time.
    """
    from pipeline.operate.repair import repair_logs

    settings = configuration.load(config).only(log, str(config))
    for line in repair_logs(
        settings, str(config), log_id=log, accept_master=accept_master, take_over=take_over, dry_run=dry_run
    ):
        show(line)


@app.command(rich_help_panel=PROVE)
def maintain(
    config: RequiredConfig,
    log: OneLog = None,
    keep_days: Annotated[float | None, typer.Option(help="delete records stored more than so many days ago")] = None,
    keep_gb: Annotated[float | None, typer.Option(help="delete each log's oldest records beyond so many GB")] = None,
    vacuum_hours: Annotated[float | None, typer.Option(help="keep younger files that no commit names")] = None,
    no_job_runs: Annotated[bool, typer.Option("--no-job-runs", help="allow --vacuum-hours below 1")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and change nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep the tables small and fast, now, while jobs run; by default a job does the same by itself each hour.

    It merges small files, joins rows of the ledger, deletes files that no commit names and old entries of the Delta
    logs, and writes checkpoints. With --keep-days or --keep-gb it also deletes the oldest records.
    """
    from pipeline.config.found import found_now
    from pipeline.monitoring.upkeep import Telling, UpkeepFile
    from pipeline.operate.maintain import Maintenance, check_horizon, step_lines, told
    from pipeline.spark.session import session_for

    given = {"keep_days": keep_days, "keep_gb": keep_gb, "vacuum_hours": vacuum_hours}
    settings = configuration.load(config).only(log, str(config)).maintained_with(given, str(config))
    check_horizon(settings.maintain, no_job_runs=no_job_runs)
    spark = session_for(settings, writes=not dry_run, makes_room=True)
    work = Maintenance(spark, found_now(settings), dry_run=dry_run).run()
    is_whole = log is None and not dry_run
    steps = list(told(work, Telling(UpkeepFile(settings))) if is_whole else work)
    answer(as_json, {"dry_run": dry_run, "steps": steps}, step_lines(steps, dry_run=dry_run))


@app.command(rich_help_panel=PROVE)
def coverage(
    config: RequiredConfig,
    log: OneLog = None,
    as_json: AsJson = False,
) -> None:
    """Show what the replica holds of each log, by offset and by the master's time, and why the rest is missing.

    Without --log it also shows how far the typed tables are complete. It fails if ranges overlap, or are missing
    without an explanation.
    """
    from pipeline.config.found import found_now
    from pipeline.inspect.coverage import coverage_blocks, coverages
    from pipeline.inspect.typed_status import status_lines, typed_statuses
    from pipeline.spark.session import without_session

    settings = without_session(configuration.load(config).only(log, str(config)))
    tables = typed_statuses(settings) if log is None else []  # before the logs, which they are never ahead of
    found = coverages(found_now(settings))
    if as_json:
        show_json({"logs": found, "tables": tables})
    else:
        out.print(coverage_blocks(found))
        for line in status_lines(tables) if tables else ():
            show(line)
    for one in found:
        if one.problem is not None:
            raise one.problem


@app.command(rich_help_panel=PROVE)
def backfill(
    config: RequiredConfig,
    log: Annotated[str, typer.Option("--log", help="id of a log of the configuration", autocompletion=log_ids)],
    start: Annotated[
        str | None,
        typer.Option("--from", help="an offset, or a time; by default all that the replica's retention did not delete"),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="an offset, or a time; by default the position")] = None,
    path: Annotated[
        str | None, typer.Option(help="a directory to read instead of the master: segment files, or dister's folder")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the holes, and fill none")] = False,
    as_json: AsJson = False,
) -> None:
    """Fill what the replica lacks: what lies before its beginning, and what was lost or damaged.

    What its own retention deleted comes back only with --from. It is safe to run twice, several times at once, and
    while the log is replicated.
    """
    from pipeline.config.found import found_now
    from pipeline.inspect.selection import subjects
    from pipeline.operate.backfill import Wanted, result_lines, run_backfill
    from pipeline.spark.session import session_for

    wanted = Wanted.parse(start, end)
    settings = configuration.load(config).only(log, str(config))
    spark = session_for(settings, writes=not dry_run)
    settings = found_now(settings)
    results = [
        run_backfill(spark, settings, one, wanted, path=path, dry_run=dry_run) for one in subjects(settings, log)
    ]
    told = results[0].as_json() if settings.logs else {"logs": results}
    answer(as_json, told, (line for one in results for line in result_lines(one, dry_run=dry_run)))


@app.command(rich_help_panel=PROVE)
def verify(
    config: RequiredConfig,
    log: OneLog = None,
    sample: Annotated[
        float | None, typer.Option(help="compare a random sample of at least this share of the bytes, 0.1 for a tenth")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="with --sample: the same seed chooses the same ranges")] = None,
    start: Annotated[int | None, typer.Option("--from", min=0, help="compare from this offset on")] = None,
    end: Annotated[int | None, typer.Option("--to", min=1, help="compare up to this offset")] = None,
    path: Annotated[
        str | None, typer.Option(help="compare with the files in this directory instead of the master")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="forget a run that was not finished")] = False,
    max_mb_per_s: Annotated[float | None, typer.Option(help="read no faster than this, from either side")] = None,
    queues: Annotated[
        bool, typer.Option("--queues", help="check the queue offsets, too, as whole runs always do")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the replica with its master: the bytes rebuilt from the table, the master's own, the ledger's checksums.

    It says which ranges and records differ and whose bytes are wrong, and records them as incidents. A run that was
    killed goes on where it stopped.
    """
    from pipeline.verify.run import Scope, verify_logs
    from pipeline.verify.summary import lines

    scope = Scope(
        share=sample,
        seed=seed,
        start=start,
        end=end,
        path=path,
        restart=restart,
        max_mb_per_s=max_mb_per_s,
        queues=queues,
    )
    settings = configuration.load(config).only(log, str(config))
    failed: list[LogtwinError] = []
    found = verify_logs(settings, scope, log, failed.append)
    if as_json and (found or not failed):
        show_json({"logs": found})
    elif not as_json:
        for line, style in (line for one in found for line in lines(one)):
            show(line, style=style)
    problems = [one.problem for one in found if one.problem is not None]
    for error in failed if problems else failed[1:]:  # the one that is raised says itself
        show(str(error), to=err)
    for error in (*problems, *failed):
        raise error
