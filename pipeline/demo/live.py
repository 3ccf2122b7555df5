"""What all demos do: a job replicates live, beside a process that writes to the master; then queries, and the proof.

The warehouse is a folder or, for ``make run WAREHOUSE=s3``, on an S3 server that ends with the demo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.fs as pafs
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from pipeline.config.configuration import Config, WorkloadConfig, load, parse
from pipeline.demo.s3_server import OWNER, S3Server, running_server
from pipeline.inspect.coverage import LogCoverage, coverage_blocks, coverages
from pipeline.inspect.selection import ConfiguredLog
from pipeline.job.replicate import Job
from pipeline.monitoring.display import Display, size
from pipeline.monitoring.progress import Progress
from pipeline.spark.session import session_for, warm_up
from pipeline.system.console import err, show, shows_live
from pipeline.system.processes import child_process
from pipeline.system.signals import stop_by_signal
from pipeline.verify.run import Scope, verify_log
from pipeline.verify.summary import lines
from sinks.storage.place import open_folder, placed
from sinks.views.definition import named_in
from sinks.views.registration import register
from sources.errors import LogtwinError

S3: Final = "s3"
"""Stands for an S3 server that the demo starts, in place of a folder. A folder of that name is ``./s3``."""
_JOB: Final = """\
# The warehouse of the demo that runs, as any job says it. The server takes any keys.
warehouse = "s3://{server.bucket}/warehouse"

[storage]
endpoint = "{server.endpoint}"
access_key = "file:{folder}/access_key"
secret_key = "file:{folder}/secret_key"
"""
_LEFT: Final = "demo.toml"


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """How long it took, and what the writer printed; None if it was cut short."""

    seconds: float
    said: str | None


def started(config: Config) -> tuple[SparkSession, Job]:
    """A job of `config` that has claimed its logs, and its session."""
    spark = session_for(config, "logtwin demo", writes=True)
    warm_up(spark)
    job = Job(spark, config, available_now=False)
    job.start()
    return spark, job


def run_beside(
    job: Job,
    writer: str,
    arguments: list[str],
    is_done: Callable[[list[Progress]], bool],
    meanwhile: Callable[[float], None] = lambda seconds: None,
    may_begin: Callable[[], bool] = lambda: True,
) -> DemoOutcome:
    """Run `job` beside ``python -m …`` with these arguments, the `writer`; until that has ended and all is done.

    Or until Ctrl-C. The writer starts once it `may_begin`. `meanwhile` is called now and then with the seconds since
    then. Raises LogtwinError.
    """
    interrupted = threading.Event()
    started_s = time.monotonic()
    display = Display(err, is_live=shows_live())
    command = [sys.executable, "-m", *arguments]
    process: subprocess.Popen[str] | None = None
    with ExitStack() as running, stop_by_signal(interrupted.set), display:

        def go_on(logs: list[Progress]) -> bool:
            nonlocal process, started_s
            display(logs)
            if interrupted.is_set():
                is_done(logs)  # the summary shows what it has found
                return False
            if process is None:
                if may_begin():
                    process = running.enter_context(child_process(command, stdout=subprocess.PIPE, text=True))
                    started_s = time.monotonic()
                return True
            meanwhile(time.monotonic() - started_s)
            if process.poll() is None:
                return True
            if process.returncode:
                raise LogtwinError(f"the {writer} failed", found=f"exit code {process.returncode}")
            return not is_done(logs)

        job.run(go_on)
        has_ended = process is not None and process.poll() == 0
        said = process.stdout.read().strip() if has_ended and process and process.stdout else None
    return DemoOutcome(time.monotonic() - started_s, said)


def as_arguments(workload: WorkloadConfig, *, keep: bool) -> list[str]:
    """The options by which a sender is told its workload."""
    duration_s = 10**9 if keep else workload.duration_s
    given = ["--seed", workload.seed, "--rate-per-s", workload.rate_per_s, "--duration-s", duration_s]
    return [str(one) for one in (*given, *([] if workload.count is None else ["--count", workload.count]))]


def pace(workload: WorkloadConfig, what: str, keep: bool) -> str:
    """How fast and how long a workload sends `what`, in words."""
    rate = f"{workload.rate_per_s:,.0f} {what}/s" if workload.rate_per_s else f"{what} as fast as it can"
    until = "until Ctrl-C" if keep else f"for {workload.duration_s:,.0f} s"
    return f"{rate} {until} (seed {workload.seed})"


def say_start(console: Console, complete_to: str | None, first: str) -> None:
    """Where the table stands; `first` is where it begins if nothing is in it."""
    if complete_to is None:
        console.print(f"the table is empty: it begins at {first}")
    else:
        console.print(f"the table is complete up to {complete_to}: it goes on from there")


def show_summary(console: Console, values: Mapping[str, str]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in values.items():
        table.add_row(f"[bold]{name}[/]", value)
    console.print(table)


def show_queries(console: Console, spark: SparkSession, warehouse: str, queries: Mapping[str, str]) -> None:
    """Run `queries`, by title, over the tables and views of the warehouse, and print the results."""
    register(spark, warehouse, views=named_in(*queries.values()))
    for title, query in queries.items():
        rows = spark.sql(query).collect()
        table = Table(box=None, pad_edge=False)
        for column in rows[0].__fields__ if rows else ["no rows"]:
            table.add_column(column, justify="right" if rows and isinstance(rows[0][column], int | float) else "left")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        console.print(f"\n[bold]{title}[/]", highlight=False)
        console.print(table)


def show_coverage(console: Console, config: Config) -> list[LogCoverage]:
    """Show that nothing is missing or doubled. Returns what was found."""
    console.print("\n[bold]is anything missing? logtwin coverage[/]", highlight=False)
    found = coverages(config)
    console.print(coverage_blocks(found))
    return found


def show_proof(console: Console, spark: SparkSession, config: Config) -> None:
    """Show, while the master still runs, that nothing is missing or doubled, and that every byte is the master's."""
    show_coverage(console, config)
    console.print("[bold]is it what the master holds, byte for byte? logtwin verify[/]", highlight=False)
    found = verify_log(spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope(restart=True))
    for line, style in lines(found):
        show(line, style=style, to=console)
    if found.problem is not None:
        raise found.problem


def _cell(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:%Y-%m-%d %H:%M:%S}"


def demo_job(settings: Config, **job: Any) -> Config:
    """The configuration of a job into the demo's warehouse. Raises ConfigurationError."""
    given = {"warehouse": settings.warehouse, "storage": settings.storage.as_said(), "spark": dict(settings.spark)}
    return parse({**given, **job}, where="demo").model_copy(update={"jars": settings.jars})


def leave_job(warehouse: str, **job: Sequence[Mapping[str, Any]]) -> None:
    """Write a configuration beside the tables in a folder, for use after the demo has ended.

    `job` has arrays of TOML tables by name; their values are strings, numbers, or lists of these.
    """
    left = _left(warehouse)
    if left is None:
        return
    lines = [
        "# The demo's warehouse, and where its master left the log.",
        f"warehouse = {json.dumps(str(left.parent.absolute()))}",
    ]
    for name, several in job.items():
        for one in several:
            lines += ["", f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in one.items())]
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("\n".join([*lines, ""]))


def _left(warehouse: str) -> Path | None:
    """The file that `leave_job` writes; None if the warehouse is no local folder."""
    folder = placed(warehouse).local
    return None if folder is None else folder / _LEFT


def _ways_in(job: Path) -> Iterator[str]:
    """Commands to look at the warehouse. For a topic without ``verify``, because its broker has ended."""
    here = Path(sys.executable).with_name("logtwin")
    program = "logtwin" if not here.exists() else os.path.relpath(here)
    for verb in ("sql", "report --serve", "status", "coverage", *(["verify"] if load(job).logs else [])):
        yield f"  {program} {verb} --config {os.path.relpath(job)}"


@contextmanager
def demo_warehouse(settings: Config, console: Console) -> Iterator[Config]:
    """`settings` with a warehouse that exists during the `with` block. At the end prints what remains of it.

    Raises ConfigurationError if the S3 server cannot be started.
    """
    if settings.warehouse != S3:
        yield settings
        console.print(f"\ntables: {settings.warehouse}; run it again and it goes on from there", soft_wrap=True)
        console.print("look at them (docs/sql.md has queries):", soft_wrap=True)
        left = _left(settings.warehouse)
        for line in () if left is None else _ways_in(left):
            console.print(line, soft_wrap=True, highlight=False)
        return
    with running_server() as server, _job_file(server, Path(settings.embedded_master.store) / "s3") as job:
        on_s3 = _loaded(settings, job)
        console.print(f"S3 server: {server.endpoint}, warehouse {on_s3.warehouse}", soft_wrap=True)
        console.print(f"ask it while this runs: logtwin sql --config {job}", soft_wrap=True)
        yield on_s3
        console.print(
            f"\ntables: {on_s3.warehouse}, {_contents(on_s3.warehouse)}; they end with the S3 server, now",
            soft_wrap=True,
        )
        console.print(
            "--keep goes on until Ctrl-C; docs/object-stores.md says how a job is given a store", soft_wrap=True
        )


@contextmanager
def _job_file(server: S3Server, folder: Path) -> Iterator[Path]:
    """A configuration file of the warehouse on `server` for other programs, removed at the end of the `with` block."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / "access_key").write_text(OWNER.access_key)
        (folder / "secret_key").write_text(OWNER.secret_key)
        job = folder / "demo.toml"
        job.write_text(_JOB.format(server=server, folder=folder.absolute()))
        yield job
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _loaded(settings: Config, job: Path) -> Config:
    given = load(job)
    return settings.model_copy(update={"warehouse": given.warehouse, "storage": given.storage})


def _contents(warehouse: str) -> str:
    filesystem, folder = open_folder(warehouse)
    found = filesystem.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    sizes = [one.size for one in found if one.is_file]
    return f"{len(sizes):,} objects of {size(sum(sizes))}"
