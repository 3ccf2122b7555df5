"""What ``logtwin rebuild`` reads: the replica of a log at one version of its table, and what the ledger proves.

Each range of the ledger is compared with its checksum while it is written, and the files are moved into place only
after the last. So either exactly what the master had arrives, or nothing. The kind of master decides which files these
are: `pipeline.operate.rebuild_commit_log`, `pipeline.operate.rebuild_topic`; `opened` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.selection import subjects
from sinks.proof.proven_log import nothing
from sources.errors import ConfigurationError, ReplicaError
from sources.offsets import LogId, OffsetRange

_HOLES_SHOWN: Final = 20

OnWritten = Callable[[int], None]
"""Receives the number of bytes just written, as `Rebuild.size_bytes` counts them."""


class RebuiltLog(Protocol):
    """The files that were made from one log."""

    def text(self, to: Path) -> str:
        """A line of text for a person; `to` is the directory that it was written to."""


class Rebuild(Protocol):
    """The logs that are rebuilt together, all at one version of their table. Driver only."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are to write; holes do not count."""

    def write(
        self, to: Path, file_size_bytes: int | None, *, zero_holes: bool, on_written: OnWritten
    ) -> Sequence[RebuiltLog]:
        """Make all of the files in the directory `to`, or none. It must be empty, or not exist.

        Raises ReplicaError (holes, unless `zero_holes`; rows that are not what was replicated), ConfigurationError,
        CorruptRecord.
        """


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
