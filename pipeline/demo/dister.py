"""The dister demo, ``make run MASTER=dister``: a leader writes, a live replica, a lost election, state and proof.

The leader is a process of its own that writes the files of a real one. Once everything is replicated, it loses an
election: its newest writes are gone, and others take their place. The job detects that, goes back to the last entry
that both have, and goes on from there.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from pipeline.config.configuration import Config, WorkloadConfig
from pipeline.demo.rocketmq import pace, show_proof, show_queries
from pipeline.demo.warehouse import demo_job, leave_job
from pipeline.job.replicate import Job
from pipeline.monitoring.display import Display, number
from pipeline.monitoring.progress import Progress
from pipeline.spark.session import session_for, warm_up
from pipeline.system.console import err
from pipeline.system.processes import child_process, stop_by_signal
from sources.dister.embedded.leader import EmbeddedLeader
from sources.dister.embedded.workload import Workload
from sources.dister.peers import PEERS_FILE
from sources.errors import LogtwinError
from sources.options import ReadOptions
from sources.registry import open_log

GROUP: Final = "demo"
LOG_ID: Final = f"dister/{GROUP}"
LOST: Final = 50
"""How many writes the leader loses with its election."""
OTHERS: Final = 80
"""How many writes the next leader has instead."""

QUERIES: Final = {
    "the newest keys of the leader, as logtwin get KEY answers": """
        SELECT key, value, id FROM dister_kv WHERE NOT deleted ORDER BY id DESC LIMIT 6""",
    "what happened to one of them: the log remembers": """
        SELECT queue_offset AS id, topic AS act, string(body) AS items FROM log
        WHERE array_contains(keys, (SELECT key FROM dister_kv WHERE NOT deleted ORDER BY id DESC LIMIT 1))
        ORDER BY id DESC LIMIT 4""",
    "services and their nodes": """
        SELECT name, index, type, node FROM dister_services WHERE is_current ORDER BY name, index""",
    "what the lost election took away": """
        SELECT topic AS act, count(*) AS entries, min(queue_offset) AS first_id, max(queue_offset) AS last_id
        FROM removed GROUP BY topic ORDER BY topic""",
}


def run_dister_demo(settings: Config, console: Console, *, keep: bool) -> None:
    """Run the demo until everything is replicated, or with `keep` until Ctrl-C. Raises LogtwinError."""
    folder = Path(settings.embedded_master.store).absolute() / "dister"
    _prepare(folder)
    console.print(f"leader: group {GROUP}, entry log and services in {folder}", soft_wrap=True)
    log = {"id": LOG_ID, "path": str(folder), "peers": str(folder / PEERS_FILE)}
    config = demo_job(settings, logs=[log], metadata={"first_after_s": 1.0})
    leave_job(settings.warehouse, logs=[log])
    console.print("starting Spark …")
    spark = session_for(config, "logtwin demo")
    warm_up(spark)
    job = Job(spark, config, available_now=False)
    job.start()
    _say_start(console, job.progress()[0], settings.workload, keep)
    outcome = _replicate(job, config.logs[0], folder, settings.workload, keep)
    _summary(console, job.progress()[0], outcome)
    show_queries(console, spark, config.warehouse, QUERIES)
    show_proof(console, spark, config)


def _prepare(folder: Path) -> None:
    with EmbeddedLeader(folder, group=GROUP) as leader:
        leader.peers_add(["10.0.0.12", "10.0.0.13"])
        leader.service_set("shop", "web", [{"url": "http://10.0.0.12/health"}, {"url": "http://10.0.0.13/health"}])
        leader.service_set("stock", "mysql", [{"host": "10.0.0.21", "port": "3306"}])


@dataclass(frozen=True, slots=True)
class DisterOutcome:
    """How long it took, and whether it reached the lost election."""

    seconds: float
    is_overruled: bool


def _replicate(job: Job, log: ReadOptions, folder: Path, workload: WorkloadConfig, keep: bool) -> DisterOutcome:
    """Write and replicate until both are done, including the lost election."""
    interrupted = threading.Event()
    is_lost = False
    started_s = time.monotonic()
    display = Display(err)
    with _writer_process(folder, workload, keep) as writer, stop_by_signal(interrupted.set), display:

        def go_on(logs: list[Progress]) -> bool:
            nonlocal is_lost
            display(logs)
            if interrupted.is_set():
                return False
            if writer.poll() is None:
                return True
            if writer.returncode:
                raise LogtwinError("the leader failed", found=f"exit code {writer.returncode}")
            if logs[0].position != open_log(log).bounds().end:
                return True
            if is_lost:
                return False
            is_lost = True
            _lose_election(folder, workload.seed)
            return True

        job.run(go_on)
    return DisterOutcome(time.monotonic() - started_s, is_lost)


def _lose_election(folder: Path, seed: int) -> None:
    """Do what an overruled node does: drop the writes that no other node has, and take those of the next leader."""
    with EmbeddedLeader(folder) as leader:
        newest = [entry.id for entry in leader.entries()][-LOST - 1 :]
        leader.truncate_to(newest[0])
        others, written = Workload(seed + 1), 0
        while written < OTHERS:
            written += others.write(leader) is not None  # some writes fail


def _say_start(console: Console, progress: Progress, workload: WorkloadConfig, keep: bool) -> None:
    if progress.position is None:
        console.print("the table is empty: it begins at the leader's first entry")
    else:
        console.print(f"the table is complete up to entry {number(progress.position - 1)}: it goes on from there")
    console.print(f"the leader writes {pace(workload, 'entries', keep)}, then loses an election\n")


def _summary(console: Console, progress: Progress, outcome: DisterOutcome) -> None:
    overruled = f"{LOST} entries were taken back, {OTHERS} others came" if outcome.is_overruled else "none needed"
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in {
        "last entry": number(None if progress.position is None else progress.position - 1),
        "entries": f"{progress.records:,} in {progress.commits:,} commits, {outcome.seconds:,.0f} s",
        "check and fix": overruled,
    }.items():
        table.add_row(f"[bold]{name}[/]", value)
    console.print(table)


@contextmanager
def _writer_process(folder: Path, workload: WorkloadConfig, keep: bool) -> Iterator[subprocess.Popen[str]]:
    rate_per_s = workload.rate_per_s or 0.0
    count = 10**9 if keep else workload.count or max(LOST + 1, int(workload.duration_s * (rate_per_s or 10_000)))
    command = [sys.executable, "-m", "pipeline", "leader", "fill", "--dir", str(folder)]
    command += ["--count", str(count), "--seed", str(workload.seed)]
    command += ["--rate-per-s", str(rate_per_s)] if rate_per_s else []
    with child_process(command, stdout=subprocess.DEVNULL, text=True) as process:
        yield process
