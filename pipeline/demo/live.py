"""What all demos do: a job replicates live, beside a process that writes to the master; then queries, and the proof."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from pipeline.config.configuration import Config, WorkloadConfig
from pipeline.inspect.coverage import LogCoverage, coverage_blocks, coverages
from pipeline.inspect.selection import ConfiguredLog
from pipeline.job.replicate import Job
from pipeline.monitoring.display import Display
from pipeline.monitoring.progress import Progress
from pipeline.spark.session import session_for, warm_up
from pipeline.system.console import err, show, shows_live
from pipeline.system.processes import child_process
from pipeline.system.signals import stop_by_signal
from pipeline.verify.run import Scope, verify_log
from pipeline.verify.summary import lines
from sinks.views.definition import named_in
from sinks.views.registration import register
from sources.errors import LogtwinError


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
