"""The Spark job that reads, writes and reports the splits of one batch of a topic."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from sinks.files import discard
from sinks.kafka.split_report import TopicReport
from sinks.kafka.tasks import TopicWriter
from sinks.split_job import collect_reports
from sinks.tables import KAFKA_LOG


def run_topic_splits(batch: DataFrame, write: TopicWriter) -> list[TopicReport]:
    """One job: `write` for the rows of `batch` (RANGES_SCHEMA), in no more tasks than run at once, a file each.

    Raises what a task raised, as what it was.
    """
    tasks = batch.coalesce(batch.sparkSession.sparkContext.defaultParallelism)
    return [TopicReport.from_json(report) for report in collect_reports(tasks, write, log=write.topic.log_id)]


def discard_files(warehouse: str, reports: Iterable[TopicReport]) -> None:
    """Remove what the tasks wrote: no commit will name it."""
    discard(KAFKA_LOG.path(warehouse), [report.file.name for report in reports if report.file is not None])
