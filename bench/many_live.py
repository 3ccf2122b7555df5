"""Some logs in one job, over HA from as many embedded masters, with the same number of messages a second in all.

The masters and their producer are one process (`bench.masters`). It sends 2,000 messages of 1 KB a second, to one
master after the other. The job has its defaults, with metadata. Once every log has its first commit, 30 s pass. The
next 60 s are measured: the records committed, how long after it was stored a message became visible (as in
`bench.freshness`), and the processor time and memory of the job's processes. Then nothing is sent for 10 s, to measure
the processor time of an idle job.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from bench.contest import Settings, percentile
from bench.contestants import config_of
from bench.freshness import TOPIC, ArrivedRows, rows
from pipeline.config.configuration import Config
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase, Progress
from pipeline.system.child_process import child_process
from sinks.batch.result import BatchStep
from sinks.tables import LOG
from sources.registry import open_log
from tests.resident import PROJECT, held_mib

RATE_PER_S = 2000
WARM_UP_S, MEASURED_S, IDLE_S = 30, 60, 10
PATIENCE_S = 240.0
_STOP_WITHIN_S = 120.0
_SETTLE_S = 2.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Live:
    """The result of one run. `cores` are processor seconds a second by kind of the job's processes, `held_mib` is the
    memory of all processes of a kind, without mapped files, and `processes` their number.
    """

    records_per_s: float
    p50_ms: float
    p99_ms: float
    commits: int
    start_s: float
    cores: Mapping[str, float]
    idle_cores: Mapping[str, float]
    step_ms: Mapping[str, float]
    held_mib: Mapping[str, int]
    processes: Mapping[str, int]


class Running:
    """A job that runs in another thread."""

    def __init__(self, job: Job, end: Future[None]) -> None:
        self._job = job
        self._end = end

    def until(self, is_true: Callable[[list[Progress]], bool]) -> None:
        """Wait until `is_true` of the job's progress.

        Raises SystemExit if a log fails or it takes too long, and the error that ended the job.
        """
        give_up_at_s = time.monotonic() + PATIENCE_S
        while not is_true(logs := self.progress()):
            if self._end.done():
                self._end.result()
            failed = [str(one.error) for one in logs if one.phase is Phase.FAILED]
            if failed or time.monotonic() > give_up_at_s:
                at = ", ".join(f"{one.log_id} {one.phase.value} at {one.position}" for one in logs)
                raise SystemExit(failed[0] if failed else f"the job does not get on: {at}")
            time.sleep(_LOOK_EVERY_S)

    def until_at(self, ends: Sequence[int]) -> None:
        """Wait until each log has committed up to its end in `ends`."""
        self.until(lambda logs: all((one.position or 0) >= end for one, end in zip(logs, ends, strict=True)))

    def progress(self) -> list[Progress]:
        return self._job.progress()


@contextmanager
def running(
    spark: SparkSession, config: Config, on_step: Callable[[BatchStep], None] | None = None
) -> Iterator[Running]:
    """Run the job of `config` in the `with` block; it stops between two batches. `on_step` is as in `Job`."""
    job = Job(spark, config, available_now=False, on_step=on_step)
    job.start()
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(job.run)
        try:
            yield Running(job, end)
        finally:
            job.request_stop()
            end.result(_STOP_WITHIN_S)


def live(spark: SparkSession, settings: Settings, count: int) -> Live:
    """Run a job of `count` logs. Raises SystemExit unless every message that was sent is in the table once."""
    folder = settings.folder / "live"
    folder.mkdir()
    warm_up_s, measured_s = settings.scaled(WARM_UP_S, least=2), settings.scaled(MEASURED_S, least=4)
    with _masters(folder, count) as masters:
        config = _config(folder / "lake", json.loads(_said(masters)))
        started_s = time.monotonic()
        with running(spark, config) as run:
            run.until(lambda logs: all(one.commits for one in logs))
            start_s = time.monotonic() - started_s
            time.sleep(warm_up_s)
            begin_ms, before = time.time() * 1000, run.progress()
            cores = _cores_over(measured_s, masters.pid)
            held, processes = _memory(masters.pid)
            end_ms, after = time.time() * 1000, run.progress()
            stored = _stop_sending(masters)
            run.until_at([open_log(one).bounds().end for one in config.logs])
            time.sleep(_SETTLE_S)
            idle_cores = _cores_over(settings.scaled(IDLE_S, least=2), masters.pid)
    found = rows(Path(LOG.path(config.warehouse)), "store_timestamp")
    if len(found.offsets) != stored:
        raise SystemExit(f"many logs: {len(found.offsets):,} rows of {count} logs, {stored:,} were stored")
    shutil.rmtree(folder)
    one = Live(
        start_s=round(start_s, 1),
        cores=cores,
        idle_cores=idle_cores,
        step_ms=_step_ms(before, after),
        held_mib=held,
        processes=processes,
        commits=sum(one.commits for one in after) - sum(one.commits for one in before),
        **_rates(found, begin_ms, end_ms),
    )
    print(f"many logs, live, {count}: {one}", flush=True)
    return one


def _memory(aside: int) -> tuple[dict[str, int], dict[str, int]]:
    """The memory, in MiB, and the number of each program's processes, without the process `aside`."""
    mib: dict[str, float] = defaultdict(float)
    processes: dict[str, int] = defaultdict(int)
    for program, held in held_mib(os.getpid(), aside=aside):
        mib[program] += held
        processes[program] += 1
    return {program: round(held) for program, held in mib.items()}, dict(processes)


def _config(lake: Path, addresses: list[tuple[str, str]]) -> Config:
    logs = [
        {"id": f"rocketmq/log-{number}", "remoting": remoting, "master": ha}
        for number, (remoting, ha) in enumerate(addresses)
    ]
    return config_of(lake, metadata=True, logs=logs)


@contextmanager
def _masters(folder: Path, count: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.masters", str(folder), str(count), str(RATE_PER_S), TOPIC]
    with child_process(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def _said(masters: subprocess.Popen[str]) -> str:
    """The next line of `masters`. Raises SystemExit if the process has ended instead."""
    line = masters.stdout.readline() if masters.stdout else ""
    if not line:
        raise SystemExit("the masters have ended")
    return line


def _stop_sending(masters: subprocess.Popen[str]) -> int:
    """Stop the producer. Returns how many messages all masters have stored."""
    if masters.stdin:
        masters.stdin.write("\n")
        masters.stdin.flush()
    return sum(json.loads(_said(masters)))


def _rates(found: ArrivedRows, begin_ms: float, end_ms: float) -> dict[str, float]:
    """The rate of rows committed in that time, and the delays of rows stored in it."""
    is_committed = (found.visible_ms >= begin_ms) & (found.visible_ms < end_ms)
    is_stored = (found.stored_ms >= begin_ms) & (found.stored_ms < end_ms)
    waited_ms = (found.visible_ms - found.stored_ms)[is_stored].tolist()
    return {
        "records_per_s": round(float(is_committed.sum()) / (end_ms - begin_ms) * 1000, 1),
        "p50_ms": round(percentile(waited_ms, 0.5)),
        "p99_ms": round(percentile(waited_ms, 0.99)),
    }


def _step_ms(before: list[Progress], after: list[Progress]) -> dict[str, float]:
    """The mean time of each step of a batch between `before` and `after`, by the names of `sinks.batch.result`."""
    commits = sum(one.commits for one in after) - sum(one.commits for one in before)
    spent_s: Counter[str] = Counter()
    for logs, sign in ((after, 1), (before, -1)):
        for one in logs:
            spent_s.update({step.value: sign * seconds for step, seconds in one.stage_s.items()})
    return {name: round(seconds / max(commits, 1) * 1000, 1) for name, seconds in spent_s.items()}


def _cores_over(seconds: float, aside: int) -> dict[str, float]:
    """Wait `seconds`; the processor seconds a second that our processes took meanwhile, without the process `aside`."""
    begin_s, before = time.monotonic(), _processor_s(aside)
    time.sleep(seconds)
    after, taken_s = _processor_s(aside), time.monotonic() - begin_s
    return {name: round((after[name] - before[name]) / taken_s, 3) for name in after}


def _processor_s(aside: int) -> dict[str, float]:
    """The processor seconds of the driver's Python, the JVM, and Spark's Python processes, including ended ones."""
    ours = psutil.Process()
    times = ours.cpu_times()
    spent_s = {"driver": times.user + times.system, "jvm": 0.0, "workers": 0.0}
    for process in ours.children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            if process.pid != aside:
                name = "jvm" if Path(process.exe()).name == "java" else "workers"
                spent_s[name] += times.user + times.system
                spent_s["workers"] += times.children_user + times.children_system
    return spent_s
