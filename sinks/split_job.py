"""The Spark job that reads, writes and reports the splits of one batch."""

from __future__ import annotations

from collections.abc import Iterable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sinks.files import discard
from sinks.spark_jobs import job_failure
from sinks.split_report import REPORT_SCHEMA, SplitReport
from sinks.tables import LOG, QUARANTINE, spark_schema
from sinks.task_memory import GivingBack, Task
from sinks.tasks import SplitWriter
from sources.offsets import LogId, Offset


def run_splits(batch: DataFrame, write: SplitWriter) -> list[SplitReport]:
    """One job: `write` for each row of `batch` (RANGES_SCHEMA). Raises what a task raised, as what it was."""
    reports = collect_reports(batch, write, log=write.master.log_id, position=write.position)
    return [SplitReport.from_json(report) for report in reports]


def collect_reports(
    batch: DataFrame,
    write: Task,
    *,
    log: LogId,
    position: Offset | None = None,
) -> list[str]:
    """What `write` makes (REPORT_SCHEMA) of each partition of `batch`; log and position are for what Spark says.

    Raises what a task raised, as what it was.
    """
    try:
        rows = batch.mapInArrow(GivingBack(write), spark_schema(REPORT_SCHEMA)).collect()
    except (PySparkException, Py4JError) as error:
        raise job_failure(
            error,
            "the Spark job that writes the batch failed",
            log=log,
            offset=position,
            hint="Nothing was committed; the batch is done again at the next start.",
        ) from error
    return [row["report"] for row in rows]


def discard_files(warehouse: str, reports: Iterable[SplitReport]) -> None:
    """Remove what the splits wrote, of records and of damage: no commit will name it."""
    reports = list(reports)
    discard(LOG.path(warehouse), [piece.file.name for one in reports for piece in one.written])
    discard_quarantined(warehouse, reports)


def discard_quarantined(warehouse: str, reports: Iterable[SplitReport]) -> None:
    kept = [one.quarantined.name for one in reports if one.quarantined is not None]
    discard(QUARANTINE.path(warehouse), kept)
