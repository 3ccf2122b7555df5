"""Chooses the kind of rebuild for ``logtwin rebuild``: of a commit log, or of the partitions of a topic."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.selection import subjects
from pipeline.operate.rebuild import Rebuild
from sinks.proof.proven_log import nothing
from sources.errors import ConfigurationError
from sources.offsets import LogId


def opened(spark: SparkSession, config: Config, log: str, *, with_epochs: bool = False) -> Rebuild:
    """The rebuild of `log` in `config`: a log, a topic with all of its replicated partitions, or one of these.

    `with_epochs` is that of `pipeline.operate.rebuild_topic.TopicRebuild`, and only for topics. Raises
    ConfigurationError if there is nothing that can be rebuilt; ReplicaError.
    """
    if config.logs:
        if with_epochs:
            raise ConfigurationError(f"{log} has no leader epochs", expected="--with-epochs of a topic alone")
        from pipeline.operate.rebuild_commit_log import CommitLogRebuild

        return CommitLogRebuild(spark, config.warehouse, config.logs[0])
    from pipeline.operate.rebuild_topic import TopicRebuild

    partitions = [one.log_id for one in subjects(config, log)]
    if not partitions:
        raise nothing(LogId.parse(log), config.warehouse, to="rebuild")
    return TopicRebuild(spark, config.warehouse, partitions, with_epochs=with_epochs)
