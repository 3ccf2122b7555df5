"""The dister demo, ``make run MASTER=dister``: a leader writes, a live replica, a lost election, state and proof.

The leader is a process of its own that writes the files of a real one. Once everything is replicated, it loses an
election: its newest writes are gone, and others take their place. The job detects that, goes back to the last entry
that both have, and goes on from there.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from rich.console import Console

from pipeline.config.configuration import Config, WorkloadConfig
from pipeline.demo.live import (
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
from pipeline.monitoring.display import number
from pipeline.monitoring.progress import Progress
from sources.dister.embedded.leader import EmbeddedLeader, Workload
from sources.dister.states import PEERS_FILE
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
    spark, job = started(config)
    _say_start(console, job.progress()[0], settings.workload, keep)
    master, has_lost = open_log(config.logs[0]), threading.Event()

    def is_done(logs: list[Progress]) -> bool:
        """What was written, and then what the next leader has instead."""
        if logs[0].position != master.bounds().end:
            return False
        if has_lost.is_set():
            return True
        has_lost.set()
        _lose_election(folder, settings.workload.seed)
        return False

    outcome = run_beside(job, "leader", _writer(folder, settings.workload, keep), is_done)
    _summary(console, job.progress()[0], outcome.seconds, is_overruled=has_lost.is_set())
    show_queries(console, spark, config.warehouse, QUERIES)
    show_proof(console, spark, config)


def _prepare(folder: Path) -> None:
    with EmbeddedLeader(folder, group=GROUP) as leader:
        leader.peers_add(["10.0.0.12", "10.0.0.13"])
        leader.service_set("shop", "web", [{"url": "http://10.0.0.12/health"}, {"url": "http://10.0.0.13/health"}])
        leader.service_set("stock", "mysql", [{"host": "10.0.0.21", "port": "3306"}])


def _lose_election(folder: Path, seed: int) -> None:
    """Do what an overruled node does: drop the writes that no other node has, and take those of the next leader."""
    with EmbeddedLeader(folder) as leader:
        newest = [entry.id for entry in leader.entries()][-LOST - 1 :]
        leader.truncate_to(newest[0])
        others, written = Workload(seed + 1), 0
        while written < OTHERS:
            written += others.write(leader) is not None  # some writes fail


def _say_start(console: Console, progress: Progress, workload: WorkloadConfig, keep: bool) -> None:
    complete_to = None if progress.position is None else f"entry {number(progress.position - 1)}"
    say_start(console, complete_to, "the leader's first entry")
    console.print(f"the leader writes {pace(workload, 'entries', keep)}, then loses an election\n")


def _summary(console: Console, progress: Progress, seconds: float, *, is_overruled: bool) -> None:
    overruled = f"{LOST} entries were taken back, {OTHERS} others came" if is_overruled else "none needed"
    values = {
        "last entry": number(None if progress.position is None else progress.position - 1),
        "entries": f"{progress.records:,} in {progress.commits:,} commits, {seconds:,.0f} s",
        "check and fix": overruled,
    }
    show_summary(console, values)


def _writer(folder: Path, workload: WorkloadConfig, keep: bool) -> list[str]:
    rate_per_s = workload.rate_per_s or 0.0
    count = 10**9 if keep else workload.count or max(LOST + 1, int(workload.duration_s * (rate_per_s or 10_000)))
    writer = ["pipeline", "leader", "fill", "--dir", str(folder), "--count", str(count), "--seed", str(workload.seed)]
    return writer + (["--rate-per-s", str(rate_per_s)] if rate_per_s else [])
