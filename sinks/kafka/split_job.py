"""The Spark job that reads, writes and reports the splits of one batch of a topic, which `sinks.split_job` planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from sinks.files import discard
from sinks.kafka.split_report import TopicReport
from sinks.kafka.tasks import TopicWriter
from sinks.spark_jobs import run_tasks
from sinks.split_job import write_facts
from sinks.tables import KAFKA_LOG
from sources.master import PlannedSplit


def run_topic_splits(spark: SparkSession, splits: Sequence[PlannedSplit], write: TopicWriter) -> list[TopicReport]:
    """`write` for all of `splits`, in no more tasks than run at once, a file each.

    Raises what a task raised, as what it was.
    """
    cores = spark.sparkContext.defaultParallelism
    reports = run_tasks(spark, write, splits, write_facts(write.topic.log_id), tasks=cores)
    return [TopicReport.from_json(report) for report in reports]


def discard_files(warehouse: str, reports: Iterable[TopicReport]) -> None:
    """Remove what the tasks wrote: no commit will name it."""
    discard(KAFKA_LOG.path(warehouse), [report.file.name for report in reports if report.file is not None])
