"""The Spark jobs of one batch: what its splits are, and the one that reads, writes and reports them.

They are two, though Spark could do both in one: each task would then have two Python workers, one of the data source
and one of the sink, by turns either, and all of them would come to hold the memory that only half of them work with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from sinks.files import discard
from sinks.spark_jobs import JobFacts, failing_as, run_tasks
from sinks.split_report import SplitReport
from sinks.tables import LOG, QUARANTINE
from sinks.tasks import SplitWriter
from sources.master import PlannedSplit
from sources.offsets import LogId, Offset


def planned(batch: DataFrame, log: LogId, position: Offset | None = None) -> list[PlannedSplit]:
    """The splits of `batch` (RANGES_SCHEMA), in order; log and position are for what Spark says."""
    with failing_as(_facts("the Spark job that plans the batch failed", log, position)):
        return [PlannedSplit.from_row(row) for row in batch.collect()]


def run_splits(spark: SparkSession, splits: Sequence[PlannedSplit], write: SplitWriter) -> list[SplitReport]:
    """`write` for each of `splits`, a task each. Raises what a task raised, as what it was."""
    facts = write_facts(write.master.log_id, write.position)
    return [SplitReport.from_json(report) for report in run_tasks(spark, write, splits, facts)]


def write_facts(log: LogId, position: Offset | None = None) -> JobFacts:
    """What to say where Spark ends the job that writes."""
    return _facts("the Spark job that writes the batch failed", log, position)


def _facts(problem: str, log: LogId, position: Offset | None) -> JobFacts:
    hint = "Nothing was committed; the batch is done again at the next start."
    return JobFacts(problem=problem, log=log, offset=position, hint=hint)


def discard_files(warehouse: str, reports: Iterable[SplitReport]) -> None:
    """Remove what the splits wrote, of records and of damage: no commit will name it."""
    reports = list(reports)
    discard(LOG.path(warehouse), [piece.file.name for one in reports for piece in one.written])
    discard_quarantined(warehouse, reports)


def discard_quarantined(warehouse: str, reports: Iterable[SplitReport]) -> None:
    kept = [one.quarantined.name for one in reports if one.quarantined is not None]
    discard(QUARANTINE.path(warehouse), kept)
