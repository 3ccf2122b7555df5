"""The Kafka topics of a replica, and the position of each partition, read from the table ``kafka_log``.

Nothing here asks a broker, so the verbs that only read a replica need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.config.configuration import Config
from sinks.books.topic_states import topics_held
from sinks.state.log_state import LogState
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId, Offset, partition_log


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
