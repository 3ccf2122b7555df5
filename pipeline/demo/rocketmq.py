"""The RocketMQ demo, ``make run``: a master, messages, a live replica, an analyst's queries, and the proof."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from pipeline.config.configuration import Config, EmbeddedMasterConfig, WorkloadConfig
from pipeline.demo.embedded_master import READY
from pipeline.demo.warehouse import demo_job, leave_job
from pipeline.inspect.coverage import coverage_blocks, coverages
from pipeline.inspect.selection import ConfiguredLog
from pipeline.job.replicate import Job
from pipeline.monitoring.display import Display, duration, number, size
from pipeline.monitoring.progress import Progress
from pipeline.spark.session import session_for, warm_up
from pipeline.system.console import err
from pipeline.system.processes import child_process, stop_by_signal
from pipeline.verify.run import Scope, verify_log
from pipeline.verify.summary import lines
from sinks.views.definition import named_in
from sinks.views.registration import register
from sources.errors import LogtwinError, MasterError
from sources.options import ReadOptions
from sources.registry import open_log

LOG_ID = "rocketmq/embedded"
SLAVE_TIMEOUT_S = 30.0
"""Long enough for Spark's first batch, which takes seconds, so that the demo's producers get the replica's answer."""
WINDOW = 8192
"""How many requests may be in flight: producers wait about a second for a commit, and send these meanwhile."""

ORDERS = {"name": "orders", "from": ["orders"], "mode": "upsert", "key": ["order_id"], "drop": ["note"]}
"""The demo's typed table."""

QUERIES = {
    "messages and bytes by topic": """
        SELECT topic, count(*) AS messages, sum(octet_length(body)) AS body_bytes,
               max(delivered_timestamp) AS newest
        FROM messages GROUP BY topic ORDER BY messages DESC, topic LIMIT 8""",
    "revenue by order status, out of the typed table orders: one row an order, the newest": """
        SELECT status, count(*) AS orders, round(sum(amount), 2) AS amount
        FROM orders GROUP BY status ORDER BY orders DESC, status""",
    "columns that came while it ran": """
        SELECT column, type, change, offset FROM schema_changes WHERE table = 'orders' ORDER BY number DESC LIMIT 3""",
    "bodies that are no order, kept apart": """
        SELECT reason, count(*) AS messages, min(found) AS for_example
        FROM unfit WHERE table = 'orders' GROUP BY reason ORDER BY messages DESC, reason""",
}


@dataclass(frozen=True, slots=True)
class MasterProcess:
    """The addresses of the embedded master, which runs as a process of its own."""

    remoting: str
    ha: str


def run_demo(settings: Config, console: Console, *, keep: bool) -> None:
    """Run the demo until everything sent is committed, or with `keep` until Ctrl-C. Raises LogtwinError."""
    with _master_process(settings.embedded_master) as master:
        console.print(f"master: HA {master.ha}, remoting {master.remoting}, store {settings.embedded_master.store}")
        config = demo_job(
            settings, logs=[{"id": LOG_ID, "master": master.ha, "remoting": master.remoting}], tables=[ORDERS]
        )
        log_files = Path(settings.embedded_master.store).absolute() / "commitlog"
        leave_job(settings.warehouse, logs=[{"id": LOG_ID, "path": str(log_files)}], tables=[ORDERS])
        console.print("starting Spark …")
        spark = session_for(config, "logtwin demo")
        warm_up(spark)
        job = Job(spark, config, available_now=False)
        job.start()
        workload = settings.workload.model_copy(update={"to": master.remoting, "window": WINDOW})
        _say_start(console, job.progress()[0], workload, keep)
        outcome = _replicate(job, config.logs[0], workload, keep)
        for error in job.tables.bring(lambda: True):  # the first is enough
            raise error
        _summary(console, job.progress()[0], outcome)
        show_queries(console, spark, config.warehouse, QUERIES)
        show_proof(console, spark, config)


@dataclass(frozen=True, slots=True)
class RocketMQOutcome:
    """How long it took, what the master counts as acknowledged, and what the producer printed; None if cut short."""

    seconds: float
    acknowledged: int | None
    producer: str | None


def _replicate(job: Job, log: ReadOptions, workload: WorkloadConfig, keep: bool) -> RocketMQOutcome:
    """Send and replicate until both are done."""
    interrupted = threading.Event()
    acknowledged: list[int | None] = [None]
    started_s = time.monotonic()
    display = Display(err)
    with _sender_process(workload, keep) as sender, stop_by_signal(interrupted.set), display:

        def go_on(logs: list[Progress]) -> bool:
            display(logs)
            if sender.poll() is None and not interrupted.is_set():
                return True
            if sender.returncode:
                raise LogtwinError("the producer failed", found=f"exit code {sender.returncode}")
            acknowledged[0] = open_log(log).acknowledged_by_master().get(log.log_id)
            return not interrupted.is_set() and acknowledged[0] != open_log(log).bounds().end

        job.run(go_on)
        said = sender.stdout.read().strip() if sender.poll() == 0 and sender.stdout else None
    return RocketMQOutcome(time.monotonic() - started_s, acknowledged[0], said)


def _say_start(console: Console, progress: Progress, workload: WorkloadConfig, keep: bool) -> None:
    if progress.position is None:
        console.print("the table is empty: it begins at the master's oldest record")
    else:
        console.print(f"the table is complete up to offset {number(progress.position)}: it goes on from there")
    console.print(f"a producer sends {pace(workload, 'messages', keep)}")
    console.print(
        "the master is a SYNC_MASTER: it answers SEND_OK once Delta has a message; before a new replica's first "
        "commit,\nSLAVE_NOT_AVAILABLE\n",
        soft_wrap=True,
    )


def pace(workload: WorkloadConfig, what: str, keep: bool) -> str:
    """How fast and how long a workload sends `what`, in words."""
    rate = f"{workload.rate_per_s:,.0f} {what}/s" if workload.rate_per_s else f"{what} as fast as it can"
    until = "until Ctrl-C" if keep else f"for {workload.duration_s:,.0f} s"
    return f"{rate} {until} (seed {workload.seed})"


def _summary(console: Console, progress: Progress, outcome: RocketMQOutcome) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    start = progress.started_at or 0
    for name, value in {
        "range": f"[{number(start)}, {number(progress.position)})".replace("[", "\\[", 1),
        "records": f"{progress.records:,} in {progress.commits:,} commits",
        "throughput": f"{progress.bytes / 1e6 / max(outcome.seconds, 1e-9):,.1f} MB/s over {outcome.seconds:,.0f} s",
        "lag": f"{size(progress.lag)}, {duration(progress.lag_s)}",
        "acknowledged": f"{number(outcome.acknowledged)}, as the master counts it",
        "producer": outcome.producer or "cut short",
    }.items():
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


def show_proof(console: Console, spark: SparkSession, config: Config) -> None:
    """Show, while the master still runs, that nothing is missing or doubled, and that every byte is the master's."""
    console.print("\n[bold]is anything missing? logtwin coverage[/]", highlight=False)
    console.print(coverage_blocks(coverages(config)))
    console.print("[bold]is it what the master holds, byte for byte? logtwin verify[/]", highlight=False)
    found = verify_log(spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope(restart=True))
    for line, style in lines(found):
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    if found.problem is not None:
        raise found.problem


def _cell(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:%Y-%m-%d %H:%M:%S}"


@contextmanager
def _master_process(settings: EmbeddedMasterConfig) -> Iterator[MasterProcess]:
    command = [sys.executable, "-m", "pipeline", "master", "--store", settings.store, "--host", settings.host]
    command += ["--port", "0", "--ha-port", "0", "--file-size-bytes", str(settings.file_size_bytes)]
    command += ["--role", "SYNC_MASTER", "--slave-timeout-s", str(SLAVE_TIMEOUT_S)]
    Path(settings.store).mkdir(parents=True, exist_ok=True)
    log_file = Path(settings.store) / "master.log"
    with log_file.open("a") as said, child_process(command, stdout=subprocess.PIPE, stderr=said, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        match = re.search(READY, line)
        if match is None:
            raise MasterError(
                "the embedded master did not start",
                found=f"exit code {process.wait()}",
                hint=f"It said why in {log_file}.",
            )
        yield MasterProcess(remoting=match["remoting"], ha=match["ha"])


@contextmanager
def _sender_process(workload: WorkloadConfig, keep: bool) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "pipeline", "send", "--to", workload.to, "--seed", str(workload.seed)]
    command += ["--rate-per-s", str(workload.rate_per_s), "--window", str(workload.window)]
    command += ["--duration-s", str(10**9 if keep else workload.duration_s)]
    if workload.count is not None:
        command += ["--count", str(workload.count)]
    with child_process(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
