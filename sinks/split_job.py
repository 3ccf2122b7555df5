"""The Spark jobs of one batch: what its splits are, and the one that reads, writes and reports them.

They are two, though Spark could do both in one: each task would then have two Python workers, one of the data source
and one of the sink, by turns either, and all of them would come to hold the memory that only half of them work with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from sinks.files import discard
from sinks.spark_jobs import JobFacts, failing_as, run_shares
from sinks.split_report import SplitReport
from sinks.tables import LOG, QUARANTINE
from sinks.tasks import SplitWriter
from sources.master import Planned, PlannedSplit, from_row
from sources.offsets import LogId
from sources.splits import WORTH_A_TASK_BYTES


def planned(batch: DataFrame, whose: str) -> list[Planned]:
    """The rows of `batch` (RANGES_SCHEMA), in order; `whose` is for what Spark says."""
    with failing_as(_facts("the Spark job that plans the batch failed", whose)):
        return [from_row(row) for row in batch.collect()]


def run_splits(spark: SparkSession, splits: Sequence[PlannedSplit], write: SplitWriter) -> list[SplitReport]:
    """`write` for each of `splits`. Raises what Spark says where it ends the job."""
    facts = write_facts(", ".join(write.logs))
    shares = in_tasks(splits, cores=spark.sparkContext.defaultParallelism)
    return [SplitReport.from_json(report) for report in run_shares(spark, write, shares, facts)]


def in_tasks(splits: Sequence[PlannedSplit], *, cores: int) -> list[list[PlannedSplit]]:
    """What each task is given: a split that is worth one has its own, the others share as many as there are cores.

    Splits of logs that do not count bytes, of which nobody knows how large they are, count as small.
    """
    alone = [[split] for split in splits if _bytes(split) >= WORTH_A_TASK_BYTES]
    small = sorted((split for split in splits if _bytes(split) < WORTH_A_TASK_BYTES), key=_bytes, reverse=True)
    shared: list[list[PlannedSplit]] = [[] for _ in range(min(cores, len(small)))]
    for split in small:
        min(shared, key=lambda task: (sum(map(_bytes, task)), len(task))).append(split)
    return alone + shared


def _bytes(split: PlannedSplit) -> int:
    return split.owned.size if LogId.parse(split.log_id).counts_bytes else 0


def write_facts(whose: object) -> JobFacts:
    """What to say where Spark ends the job that writes."""
    return _facts("the Spark job that writes the batch failed", whose)


def _facts(problem: str, whose: object) -> JobFacts:
    return JobFacts(
        problem=problem, log=whose, hint="Nothing was committed; the batch is done again at the next start."
    )


def discard_files(warehouse: str, reports: Iterable[SplitReport]) -> None:
    """Remove what the splits wrote, of records and of damage: no commit will name it."""
    reports = list(reports)
    discard(LOG.path(warehouse), [piece.file.name for one in reports for piece in one.written])
    discard_quarantined(warehouse, reports)


def discard_quarantined(warehouse: str, reports: Iterable[SplitReport]) -> None:
    kept = [one.quarantined.name for one in reports if one.quarantined is not None]
    discard(QUARANTINE.path(warehouse), kept)
