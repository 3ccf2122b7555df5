"""The Spark job of one batch: it reads its splits, writes and reports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from sinks.batch.receiver import LogWriter
from sinks.batch.split_report import SplitReport
from sinks.batch.tasks import write_splits
from sinks.delta.files import discard
from sinks.delta.spark_jobs import JobFacts, run_shares
from sinks.tables import QUARANTINE, log_table
from sources.master import PlannedSplit
from sources.offsets import LogId
from sources.splits import longest

TASK_BYTES: Final = longest(256 * 1024 * 1024)
"""What a task reads at most of several splits; a single one may be longer."""


def run_splits(spark: SparkSession, splits: Sequence[PlannedSplit], logs: Mapping[str, LogWriter]) -> list[SplitReport]:
    """Read and write `splits`, each by that of `logs` that has its id. Raises what Spark says where it ends the job.

    A task is sent what it needs for its own splits, not for those of others.
    """
    facts = JobFacts(
        problem="the Spark job that writes the batch failed",
        log=", ".join(logs),
        hint="Nothing was committed; the batch is done again at the next start.",
    )
    sized = [(split, logs[split.log_id].master.size_bytes(split.owned) or 0) for split in splits]
    shares = in_tasks(sized, cores=spark.sparkContext.defaultParallelism)
    given = [[(split, logs[split.log_id]) for split in share] for share in shares]
    return run_shares(spark, write_splits, given, facts)


def in_tasks(splits: Sequence[tuple[PlannedSplit, int]], *, cores: int) -> list[list[PlannedSplit]]:
    """What each task is given of `splits`, which come with their bytes, 0 where nobody knows: about the same.

    As many tasks as cores, and more only where one would read for long: each costs 50 ms beside its bytes.
    """
    total_bytes = sum(size_bytes for _, size_bytes in splits)
    rounds = max(1, -(-total_bytes // (cores * TASK_BYTES)))
    tasks = [_Task() for _ in range(min(len(splits), rounds * cores))]
    for split, size_bytes in sorted(splits, key=lambda one: one[1], reverse=True):
        min(tasks, key=lambda task: (task.bytes, len(task.splits))).add(split, size_bytes)
    return [task.splits for task in tasks]


@dataclass(slots=True)
class _Task:
    bytes: int = 0
    splits: list[PlannedSplit] = field(default_factory=list)

    def add(self, split: PlannedSplit, size_bytes: int) -> None:
        self.bytes += size_bytes
        self.splits.append(split)


def discard_files(warehouse: str, reports: Iterable[SplitReport]) -> None:
    """Remove what the tasks wrote: no commit will name it."""
    for report in reports:
        discard(log_table(LogId.parse(report.log_id)).path(warehouse), report.files)
        discard_quarantined(warehouse, [report])


def discard_quarantined(warehouse: str, reports: Iterable[SplitReport]) -> None:
    """Remove what the tasks kept of damage."""
    kept = [one.quarantined.name for one in reports if one.quarantined is not None]
    if kept:
        discard(QUARANTINE.path(warehouse), kept)
