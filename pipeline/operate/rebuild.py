"""What ``logtwin rebuild`` reads: the replica of a log at one version of its table, and what the ledger proves.

Each range of the ledger is compared with its checksum while it is written, and the files are moved into place only
after the last. So either exactly what the master had arrives, or nothing. The kind of master decides which files these
are: `pipeline.operate.rebuild_commit_log`, `pipeline.operate.rebuild_topic`; `opened` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.selection import subjects
from sinks.proof.proven_log import nothing
from sources.errors import ConfigurationError, ReplicaError
from sources.offsets import LogId, OffsetRange

if TYPE_CHECKING:
    from pipeline.operate.rebuild_commit_log import CommitLogRebuild
    from pipeline.operate.rebuild_topic import TopicRebuild

_HOLES_SHOWN: Final = 20

OnWritten = Callable[[int], None]
"""Receives the number of bytes just written, as `size_bytes` of a rebuild counts them."""


def holed(log_id: LogId, missing: Sequence[OffsetRange], expected: str, with_zero_holes: str) -> ReplicaError:
    """The error that the files would lack the ranges `missing`; `with_zero_holes` says what that option does."""
    shown = ", ".join(map(str, missing[:_HOLES_SHOWN]))
    more = f" and {len(missing) - _HOLES_SHOWN:,} more" if len(missing) > _HOLES_SHOWN else ""
    return ReplicaError(
        "the files would have holes",
        log=log_id,
        offset=missing[0].start,
        expected=expected,
        found=f"no records in {shown}{more}",
        hint=f"Fill them with logtwin backfill, or {with_zero_holes} with --zero-holes.",
    )


def opened(
    spark: SparkSession, config: Config, log: str, *, with_epochs: bool = False
) -> CommitLogRebuild | TopicRebuild:
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
