"""Some logs in one job, with the same number of messages a second in all.

The masters and their producer are one process (`bench.load`). It sends 2,000 messages of 1 KB a second, to one log
after the other. The job has its defaults, with metadata. Once every log has its first commit, some time passes. Then
are measured: the records committed, how long after it was stored a message became visible (as in `bench.freshness`),
and the processor time and memory of the job's processes. Then nothing is sent for 10 s, to measure the processor time
of an idle job.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pyspark.sql import SparkSession

from bench.contest import Settings, percentile
from bench.freshness import TOPIC, ArrivedRows, rows
from bench.load import running_load
from pipeline.config.configuration import Config
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase, Progress
from sinks.batch.result import BatchStep
from sinks.tables import TableSpec
from tests.resident import below, held_mib

RATE_PER_S = 2000
IDLE_S = 10
PATIENCE_S = 240.0
_STOP_WITHIN_S = 120.0
_SETTLE_S = 2.0
_LOOK_EVERY_S = 0.05
_SAMPLE_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Masters:
    """Masters for `bench.load`: `config` makes the job's configuration, of the warehouse and what `module` says.

    `table` gets their records, whose column `stored` says when the master stored them.
    """

    module: str
    config: Callable[[Path, Any], Config]
    table: TableSpec
    stored: str
    warm_up_s: int
    measured_s: int


@dataclass(frozen=True, slots=True)
class Live:
    """The result of one run. `first_s` is the time from the job's start until its first commit, `start_s` until each
    log has one. `cores` are processor seconds a second by kind of the job's processes, `held_mib` is the
    memory of all processes of a kind, without mapped files, and `processes` their number.
    """

    records_per_s: float
    p50_ms: float
    p99_ms: float
    commits: int
    first_s: float
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


def live(spark: SparkSession, settings: Settings, masters: Masters, count: int) -> Live:
    """Run a job of `count` logs. Raises SystemExit unless every message that was sent is in the table once."""
    folder = settings.folder / "live"
    folder.mkdir()
    warm_up_s, measured_s = settings.scaled(masters.warm_up_s, least=2), settings.scaled(masters.measured_s, least=4)
    with running_load(masters.module, folder, count, RATE_PER_S, TOPIC) as load:
        config = masters.config(folder / "lake", load.masters)
        table = Path(masters.table.path(config.warehouse))
        started_s = time.monotonic()
        with running(spark, config) as run:
            run.until(lambda logs: any(one.commits for one in logs))
            first_s = time.monotonic() - started_s
            run.until(_all_have_begun)
            start_s = time.monotonic() - started_s
            time.sleep(warm_up_s)
            begin_ms, before = time.time() * 1000, run.progress()
            cores = _cores_over(measured_s, load.pid)
            held, processes = _memory(load.pid)
            end_ms, after = time.time() * 1000, run.progress()
            stored = load.stop_sending()
            run.until(lambda _: len(rows(table, masters.stored).offsets) >= stored)
            time.sleep(_SETTLE_S)
            idle_cores = _cores_over(settings.scaled(IDLE_S, least=2), load.pid)
    found = rows(table, masters.stored)
    if len(found.offsets) != stored:
        raise SystemExit(f"many logs: {len(found.offsets):,} rows of {count} logs, {stored:,} were stored")
    shutil.rmtree(folder)
    one = Live(
        first_s=round(first_s, 1),
        start_s=round(start_s, 1),
        cores=cores,
        idle_cores=idle_cores,
        step_ms=_step_ms(before, after),
        held_mib=held,
        processes=processes,
        **rates(found, begin_ms, end_ms),
    )
    print(f"many logs, live, {count}: {one}", flush=True)
    return one


def _all_have_begun(logs: list[Progress]) -> bool:
    return all(one.commits and all((at.position or 0) > 0 for at in one.partitions.values()) for one in logs)


def _memory(aside: int) -> tuple[dict[str, int], dict[str, int]]:
    """The memory, in MiB, and the number of each program's processes, without the process `aside`."""
    mib: dict[str, float] = defaultdict(float)
    processes: dict[str, int] = defaultdict(int)
    for program, held in held_mib(os.getpid(), aside=aside):
        mib[program] += held
        processes[program] += 1
    return {program: round(held) for program, held in mib.items()}, dict(processes)


def rates(found: ArrivedRows, begin_ms: float, end_ms: float) -> dict[str, Any]:
    """The commits of that time and the rate of their rows, and the delays of rows stored in it."""
    is_committed = (found.visible_ms >= begin_ms) & (found.visible_ms < end_ms)
    is_stored = (found.stored_ms >= begin_ms) & (found.stored_ms < end_ms)
    waited_ms = (found.visible_ms - found.stored_ms)[is_stored].tolist()
    return {
        "records_per_s": round(float(is_committed.sum()) / (end_ms - begin_ms) * 1000, 1),
        "p50_ms": round(percentile(waited_ms, 0.5)),
        "p99_ms": round(percentile(waited_ms, 0.99)),
        "commits": len(np.unique(found.visible_ms[is_committed])),
    }


def _step_ms(before: list[Progress], after: list[Progress]) -> dict[str, float]:
    """The mean time of each step of a batch between `before` and `after`, by the names of `sinks.batch.result`."""
    commits = sum(one.commits for one in after) - sum(one.commits for one in before)
    spent_s: Counter[str] = Counter()
    for logs, sign in ((after, 1), (before, -1)):
        for one in logs:
            spent_s.update({step.value: sign * seconds for step, seconds in one.stage_s.items()})
    return {name: round(seconds / max(commits, 1) * 1000, 1) for name, seconds in spent_s.items()}


class ProcessorTime:
    """Adds up the processor time of processes that come and go, from looks at those that there are.

    What a process has taken stays in the sum when it ends, as far as the last look at it saw: no sum ever goes down.
    """

    def __init__(self) -> None:
        self._begin_s: dict[Hashable, float] | None = None
        self._last: dict[Hashable, tuple[str, float]] = {}

    def look(self, now: Mapping[Hashable, tuple[str, float]]) -> None:
        """Take the kind of each process and the seconds that it has taken since its start.

        Those of the first look count from then on, later ones from their start.
        """
        if self._begin_s is None:
            self._begin_s = {process: seconds for process, (_, seconds) in now.items()}
        self._last.update(now)

    def spent_s(self) -> dict[str, float]:
        """The seconds of each kind since the first look."""
        spent_s: dict[str, float] = defaultdict(float)
        for process, (kind, seconds) in self._last.items():
            spent_s[kind] += seconds - (self._begin_s or {}).get(process, 0.0)
        return dict(spent_s)


def _cores_over(seconds: float, aside: int) -> dict[str, float]:
    """Wait `seconds`; the processor seconds a second that our processes took meanwhile, without the process `aside`."""
    begin_s, spent = time.monotonic(), ProcessorTime()
    spent.look(_processor_s(aside))
    while (left_s := begin_s + seconds - time.monotonic()) > 0:
        time.sleep(min(left_s, _SAMPLE_EVERY_S))
        spent.look(_processor_s(aside))
    taken_s = time.monotonic() - begin_s
    cores = {kind: round(spent_s / taken_s, 3) for kind, spent_s in spent.spent_s().items()}
    return dict.fromkeys(("driver", "jvm", "workers"), 0.0) | cores


def _processor_s(aside: int) -> dict[Hashable, tuple[str, float]]:
    """The kind of each process, and its own processor seconds: driver's Python, JVM, and Spark's Python processes."""
    ours = psutil.Process()
    found: dict[Hashable, tuple[str, float]] = {}
    for process in (ours, *below(ours, aside)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            kind = "driver" if process == ours else "jvm" if Path(process.exe()).name == "java" else "workers"
            found[process] = kind, times.user + times.system
    return found
