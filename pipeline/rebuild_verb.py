"""Which kind of rebuild ``logtwin rebuild`` means: of a commit log, or of the partitions of a topic."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipeline.config import Config
from pipeline.rebuild import Rebuild, nothing
from pipeline.subjects import subjects
from sinks.tables import log_table
from sources.offsets import LogId


def opened(spark: SparkSession, config: Config, log: str) -> Rebuild:
    """That of `log`, which `config` has: a log, a topic with all partitions that were replicated, or one of these.

    Raises ConfigurationError where there is nothing to rebuild, or nothing that could be; ReplicaError.
    """
    if config.logs:
        from pipeline.rebuild_commit_log import CommitLogRebuild

        return CommitLogRebuild(spark, config.warehouse, config.logs[0])
    from pipeline.rebuild_topic import TopicRebuild

    partitions = [one.log_id for one in subjects(spark, config, log)]
    if not partitions:
        log_id = LogId.parse(log)
        raise nothing(log_id, log_table(log_id).path(config.warehouse))
    return TopicRebuild(spark, config.warehouse, partitions)
