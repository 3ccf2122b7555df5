"""Selects the logs that a verb works on, and opens each: those of ``[[logs]]``, and the partitions of topics.

For a topic these are the partitions that the replica has, by the table ``kafka_log``. A broker is asked only when a log
is opened and read, so the verbs that only read a replica need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipeline.config.configuration import Config
from sinks.books.topic_states import topics_held
from sinks.state.log_state import LogState
from sources.errors import ConfigurationError
from sources.kafka.options import ReplicatedTopicOptions
from sources.loss import OnLoss
from sources.master import Known, MasterLog
from sources.offsets import LogId, Offset, partition_log
from sources.options import ReadOptions
from sources.registry import FollowedOptions, open_master


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """One topic, and the state of each partition that a job has ever claimed, by number."""

    options: ReplicatedTopicOptions
    states: Mapping[int, LogState]

    @property
    def log_id(self) -> LogId:
        return self.options.log_id

    @property
    def identity(self) -> str | None:
        """The id of the replicated topic; None before its replication begins."""
        return next((one.identity for one in self.states.values() if one.identity is not None), None)

    @property
    def positions(self) -> dict[int, Offset]:
        return {number: one.offset for number, one in sorted(self.states.items()) if one.offset is not None}

    def partitions(self) -> Iterator[tuple[LogId, LogState]]:
        """The log of each partition that has a position, in order."""
        for number in self.positions:
            yield partition_log(self.log_id, number), self.states[number]


def held_topics(config: Config) -> list[HeldTopic]:
    """The topics that a configuration names. Raises ReplicaError."""
    held = topics_held(config.warehouse) if config.topics else {}
    return [HeldTopic(options, held.get(options.log_id, {})) for options in config.named_topics]


@dataclass(frozen=True, slots=True)
class ConfiguredLog:
    """One log that a verb works on: `log_id`, of the master that `options` describe.

    `identity` is that of the replica (`Known`), for a partition the id of its topic.
    """

    options: FollowedOptions
    log_id: LogId
    identity: str | None = None

    @classmethod
    def alone(cls, options: ReadOptions) -> ConfiguredLog:
        return cls(options, options.log_id)

    @property
    def run_id(self) -> str:
        """The id by which its job is known: its own, or its topic's."""
        return self.options.id

    @property
    def batch_bytes(self) -> int:
        return self.options.max_bytes_per_trigger

    @property
    def reads_in_parallel(self) -> bool:
        """Whether several connections to its master are allowed: by the operator, or because nobody counts them."""
        return not isinstance(self.options, ReadOptions) or self.options.parallel_reads

    def open(self, on_loss: OnLoss | None = None) -> MasterLog:
        """Open its master's log, with `on_loss` in place of the configured policy if given.

        Raises ConfigurationError.
        """
        options = self.options if on_loss is None else self.options.model_copy(update={"on_loss": on_loss})
        return replace(self, options=options).open_any().continuing(Known(self.identity))

    def open_any(self) -> MasterLog:
        """Open the log that has its name now, even if it is not the one that was replicated."""
        return open_master(self.options).log(self.log_id)

    def by_path(self, path: str) -> ConfiguredLog:
        """Return the log as read from a directory of its master's files. Raises ConfigurationError if it cannot be."""
        if isinstance(self.options, ReadOptions):
            return replace(self, options=self.options.by_path(path))
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
        yield ConfiguredLog.alone(options)
    for topic in held_topics(config):
        for log_id, state in topic.partitions():
            yield ConfiguredLog(topic.options, log_id, state.identity)
