"""The RocketMQ demo, ``make run``: a master, messages, a live replica, an analyst's queries, and the proof."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.config.configuration import Config, EmbeddedMasterConfig, WorkloadConfig
from pipeline.demo.embedded_master import READY
from pipeline.demo.live import (
    DemoOutcome,
    as_arguments,
    demo_job,
    leave_job,
    pace,
    run_beside,
    say_start,
    show_proof,
    show_queries,
    show_summary,
    started,
)
from pipeline.demo.shop_database import DATABASE, TABLE, TOPIC, TYPES, ChangeFeed
from pipeline.monitoring.display import duration, number, size
from pipeline.monitoring.progress import Progress
from pipeline.system.processes import child_process
from sinks.views.definition import named_in
from sinks.views.registration import register
from sources.access.address import Address
from sources.errors import MasterError, ReplicaError
from sources.master import SoleMaster
from sources.registry import open_log
from sources.rocketmq.format.properties import WAIT
from sources.rocketmq.producer.producer import OutgoingMessage, Producer

LOG_ID = "rocketmq/embedded"
SLAVE_TIMEOUT_S = 30.0
"""Long enough for Spark's first batch, which takes seconds, so that the demo's producers get the replica's answer."""
FIRST = OutgoingMessage("user-events", b'{"event": "login", "page": "/"}', {WAIT: "false"})
"""Nobody waits for it. A replica of an empty log has nothing to acknowledge, and so is none to its master."""
FIRST_WITHIN_S = 60.0
WINDOW = 8192
"""How many requests may be in flight: producers wait about a second for a commit, and send these meanwhile."""

ORDERS = {"name": "orders", "from": ["orders"], "mode": "upsert", "key": ["order_id"], "drop": ["note"]}
"""The demo's typed table of messages."""
CUSTOMERS = {"name": "customers", "from": [TOPIC], "format": "canal", "database": DATABASE, "table": TABLE,
             "mode": "upsert", "key": ["id"]}  # fmt: skip
"""The demo's table of change events."""
TABLES = [ORDERS, CUSTOMERS]

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
        SELECT reason, count(*) AS unfit_values, min(found) AS for_example
        FROM unfit WHERE table = 'orders' GROUP BY reason ORDER BY unfit_values DESC, reason""",
}


def run_demo(settings: Config, console: Console, *, keep: bool) -> None:
    """Run the demo until everything sent is committed, or with `keep` until Ctrl-C. Raises LogtwinError."""
    with _master_process(settings.embedded_master) as master:
        ha, remoting = master["ha"], master["remoting"]
        console.print(f"master: HA {ha}, remoting {remoting}, store {settings.embedded_master.store}")
        config = demo_job(settings, logs=[{"id": LOG_ID, "master": ha, "remoting": remoting}], tables=TABLES)
        log_files = Path(settings.embedded_master.store).absolute() / "commitlog"
        leave_job(settings.warehouse, logs=[{"id": LOG_ID, "path": str(log_files)}], tables=TABLES)
        spark, job = started(config)
        _say_start(console, job.progress()[0], settings.workload, keep)
        log, acknowledged = open_log(config.logs[0]), list[int | None]()
        feed = ChangeFeed(Address.parse(remoting), settings.workload.seed)

        def is_done(_: list[Progress]) -> bool:
            acknowledged[:] = [log.acknowledged_by_master().get(log.log_id)]
            return feed.has_ended() and acknowledged[0] == log.bounds().end

        sender = ["pipeline", "send", "--to", remoting, "--window", str(WINDOW)]
        outcome = run_beside(
            job,
            "producer",
            [*sender, *as_arguments(settings.workload, keep=keep)],
            is_done,
            meanwhile=lambda _: feed.begin(),
            may_begin=first_is_acknowledged(log, remoting, console),
        )
        for error in job.tables.bring(lambda: True):  # the first is enough
            raise error
        _summary(console, job.progress()[0], outcome, acknowledged[0] if acknowledged else None)
        show_queries(console, spark, config.warehouse, QUERIES)
        if outcome.said is not None:  # otherwise its last changes may be nowhere yet
            show_source(console, spark, config.warehouse, feed)
        show_proof(console, spark, config)


def show_source(console: Console, spark: SparkSession, warehouse: str, feed: ChangeFeed) -> None:
    """Show that the table of change events has the rows of the database that sent them. Raises ReplicaError."""
    title = (
        f"is the table {CUSTOMERS['name']} what the shop's database has, after {feed.sent:,} change events of Canal?"
    )
    console.print(f"\n[bold]{title}[/]", highlight=False)
    query = f"SELECT {', '.join(TYPES)} FROM {CUSTOMERS['name']}"  # noqa: S608 - our own names
    register(spark, warehouse, views=named_in(query))
    source = {tuple(row.values()) for row in feed.database.rows.values()}
    rows = [tuple(None if value is None else str(value) for value in row) for row in spark.sql(query).collect()]
    if len(rows) != len(source) or {*rows} != source:
        missing, more = sorted(source.difference(rows), key=str), sorted({*rows} - source, key=str)
        raise ReplicaError(
            f"the table {CUSTOMERS['name']} is not what its source is",
            expected=f"{len(source):,} rows, among them {missing[:3]}",
            found=f"{len(rows):,} rows, among them {more[:3]}",
        )
    console.print(f"  the same {len(rows):,} rows")


def _say_start(console: Console, progress: Progress, workload: WorkloadConfig, keep: bool) -> None:
    complete_to = None if progress.position is None else f"offset {number(progress.position)}"
    say_start(console, complete_to, "the master's oldest record")
    console.print(f"a producer sends {pace(workload, 'messages', keep)}")
    console.print(
        "the master is a SYNC_MASTER: it answers SEND_OK once Delta has a message; so the producer begins when a "
        "first one\nis acknowledged\n",
        soft_wrap=True,
    )


def first_is_acknowledged(log: SoleMaster, remoting: str, console: Console) -> Callable[[], bool]:
    """Send the first message. Returns what tells whether the master counts it as acknowledged by the replica.

    If that takes too long, it says so, and that the producer may begin all the same.
    """
    with Producer(Address.parse(remoting)) as producer:
        producer.send(FIRST)
    end, until_s = log.bounds().end, time.monotonic() + FIRST_WITHIN_S

    def may_begin() -> bool:
        if log.acknowledged_by_master().get(log.log_id, 0) >= end:
            return True
        if time.monotonic() < until_s:
            return False
        console.print(
            f"the replica has acknowledged nothing within {FIRST_WITHIN_S:.0f} s; the producer begins, and is told "
            "SLAVE_NOT_AVAILABLE until it has",
            soft_wrap=True,
        )
        return True

    return may_begin


def _summary(console: Console, progress: Progress, outcome: DemoOutcome, acknowledged: int | None) -> None:
    position = f"[{number(progress.started_at or 0)}, {number(progress.position)})"
    values = {
        "range": position.replace("[", "\\[", 1),
        "records": f"{progress.records:,} in {progress.commits:,} commits",
        "throughput": f"{progress.bytes / 1e6 / max(outcome.seconds, 1e-9):,.1f} MB/s over {outcome.seconds:,.0f} s",
        "lag": f"{size(progress.lag)}, {duration(progress.lag_s)}",
        "acknowledged": f"{number(acknowledged)}, as the master counts it",
        "producer": outcome.said or "cut short",
    }
    show_summary(console, values)


@contextmanager
def _master_process(settings: EmbeddedMasterConfig) -> Iterator[re.Match[str]]:
    """The embedded master as a process of its own; yields its addresses, as READY names them."""
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
        yield match
