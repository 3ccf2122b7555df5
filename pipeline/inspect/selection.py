"""Selects the logs that a verb works on, and opens each: those of ``[[logs]]``, and the partitions of topics.

For a topic these are the partitions that the replica has. A broker is asked only when a log is opened and read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pipeline.config.configuration import Config
from sources.errors import ConfigurationError
from sources.loss import OnLoss
from sources.master import Known, MasterLog
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.registry import open_log

if TYPE_CHECKING:
    from sources.kafka.options import ReplicatedTopicOptions


class ConfiguredLog(Protocol):
    """One log that a verb works on."""

    @property
    def log_id(self) -> LogId: ...

    @property
    def run_id(self) -> str:
        """The id by which its job is known: its own, or its topic's."""

    @property
    def batch_bytes(self) -> int:
        """The most bytes that are read from it at once."""

    @property
    def reads_in_parallel(self) -> bool:
        """Whether the operator allows several connections to its master."""

    def open(self, on_loss: OnLoss | None = None) -> MasterLog:
        """Open its master's log, with `on_loss` in place of the configured policy if given.

        Raises ConfigurationError.
        """

    def open_any(self) -> MasterLog:
        """Open the log that has its name now, even if it is not the one that was replicated."""

    def by_path(self, path: str) -> ConfiguredLog:
        """The same log, read from a directory of its master's files. Raises ConfigurationError if it cannot be."""


@dataclass(frozen=True, slots=True)
class OneLog:
    """A log of ``[[logs]]``."""

    options: ReadOptions

    @property
    def log_id(self) -> LogId:
        return self.options.log_id

    @property
    def run_id(self) -> str:
        return self.options.id

    @property
    def batch_bytes(self) -> int:
        return self.options.max_bytes_per_trigger

    @property
    def reads_in_parallel(self) -> bool:
        return self.options.parallel_reads

    def open(self, on_loss: OnLoss | None = None) -> MasterLog:
        return open_log(self.options if on_loss is None else self.options.model_copy(update={"on_loss": on_loss}))

    def open_any(self) -> MasterLog:
        return self.open()

    def by_path(self, path: str) -> OneLog:
        return OneLog(self.options.by_path(path))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic; `identity` is the topic's id in the replica."""

    options: ReplicatedTopicOptions
    log_id: LogId
    identity: str | None

    @property
    def run_id(self) -> str:
        return self.options.id

    @property
    def batch_bytes(self) -> int:
        from sources.kafka.reader import RECORD_BYTES

        return self.options.max_offsets_per_trigger * RECORD_BYTES

    @property
    def reads_in_parallel(self) -> bool:
        return True

    def open(self, on_loss: OnLoss | None = None) -> MasterLog:
        options = self.options if on_loss is None else self.options.model_copy(update={"on_loss": on_loss})
        return replace(self, options=options).open_any().continuing(Known(self.identity))

    def open_any(self) -> MasterLog:
        from sources.kafka.log import open_partition

        return open_partition(self.options, self.log_id)

    def by_path(self, path: str) -> Partition:
        raise ConfigurationError(
            "a partition of a topic is read from its brokers alone", log=self.log_id, expected="no path", found=path
        )


def subjects(config: Config, log: str | None = None) -> Iterator[ConfiguredLog]:
    """The logs of a configuration, or only those of `log`, the id of a log or of a topic.

    Raises ReplicaError if the table of topics cannot be read.
    """
    return (one for one in _all(config) if log in (None, str(one.log_id), one.run_id))


def _all(config: Config) -> Iterator[ConfiguredLog]:
    for options in config.logs:
        yield OneLog(options)
    if config.topics:
        from pipeline.inspect.topics_held import held_topics

        for topic in held_topics(config):
            for log_id, state in topic.partitions():
                yield Partition(topic.options, log_id, state.identity)
