"""The logs and topics whose status is wanted, and what their masters answer.

A log is asked about as a topic of one partition is, so that there is one way to tell the status of either. What needs
the Kafka client is imported where it is called, so that only configurations with topics load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pipeline.config.configuration import Config
from pipeline.inspect.selection import held_topics
from sinks.delta.delta_log import newest
from sinks.state.fence import state_at
from sinks.state.log_state import LogState
from sinks.tables import LOG
from sinks.warehouse import absolute
from sources.errors import LogtwinError
from sources.kafka.cluster.settings import Isolation
from sources.kafka.options import ReplicatedTopicOptions
from sources.master import Master, MasterView
from sources.offsets import LogId, Offset, OffsetRange
from sources.registry import open_log

if TYPE_CHECKING:
    from sources.kafka.topic import KafkaTopic

_TOPIC_PATIENCE_MS: Final = 2000  # somebody waits for the answer


@dataclass(frozen=True, slots=True)
class MasterAnswer:
    """A master's answer about each partition, by number, or why there is none.

    `acknowledged` is up to where it counts a replica, `held_back` how many offsets behind `held` wait for an open
    transaction, `identity` the id of the topic that it has. `view` is what the master of a log says of itself.
    """

    held: Mapping[int, OffsetRange] = field(default_factory=dict)
    acknowledged: Mapping[int, Offset] = field(default_factory=dict)
    held_back: Mapping[int, int] = field(default_factory=dict)
    identity: str | None = None
    view: MasterView | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A log or a topic: what the configuration says, the state of each partition in the table, and whom to ask.

    A log is its own partition 0. `ask` raises nothing that belongs into an answer.
    """

    log_id: LogId
    role: str
    master: str
    states: Mapping[int, LogState]
    ask: Callable[[], MasterAnswer]
    has_partitions: bool = False

    @property
    def identity(self) -> str | None:
        """The id of the replicated topic; None of a log, and before the replication begins."""
        return next((one.identity for one in self.states.values() if one.identity is not None), None)


def logs_to_ask(config: Config) -> list[Subject]:
    """The logs of a configuration, with their states in the table now. Raises ConfigurationError, ReplicaError."""
    version = newest(LOG.path(absolute(config.warehouse))) if config.logs else None
    masters = [open_log(options) for options in config.logs]
    states = [None if version is None else state_at(version, one.log_id) for one in masters]
    return [subject(master, state) for master, state in zip(masters, states, strict=True)]


def subject(master: Master, state: LogState | None) -> Subject:
    states = {} if state is None else {0: state}
    return Subject(master.id, master.role, master.address, states, lambda: _ask(master))


def _ask(master: Master) -> MasterAnswer:
    try:
        return answered(master.view(), master.acknowledged_by_master().get(master.id))
    except LogtwinError as error:  # also of its configuration: a folder that has no files yet
        return MasterAnswer(error=str(error))


def answered(view: MasterView, acknowledged: Offset | None) -> MasterAnswer:
    return MasterAnswer({0: view.bounds}, {} if acknowledged is None else {0: acknowledged}, view=view)


def topics_to_ask(config: Config) -> list[Subject]:
    """The topics of a configuration, with the states of their partitions in the table now. Raises ReplicaError."""
    return [topic_subject(one.options, one.states) for one in held_topics(config)]


def topic_subject(options: ReplicatedTopicOptions, states: Mapping[int, LogState]) -> Subject:
    from sources.kafka.topic import open_topic

    topic = replace(open_topic(options), patience_ms=_TOPIC_PATIENCE_MS)
    return Subject(topic.id, topic.role, topic.address, states, lambda: _ask_topic(topic), has_partitions=True)


def _ask_topic(topic: KafkaTopic) -> MasterAnswer:
    from sources.kafka.metadata import fetched, held_back

    (found,) = fetched(topic)
    if found.items is None or isinstance(found.items, LogtwinError):
        return MasterAnswer(error=str(found.items))
    end = "last_stable" if topic.isolation is Isolation.READ_COMMITTED else "log_end"
    rows = {row["partition"]: row for row in found.items.to_pylist()}
    return MasterAnswer(
        held={at: OffsetRange(row["log_start"], row[end]) for at, row in rows.items() if row["leader"] is not None},
        acknowledged={at: row["group_offset"] for at, row in rows.items() if row["group_offset"] is not None},
        held_back=held_back(found.items, topic.isolation),
        identity=next((row["topic_id"] for row in rows.values()), None),
    )
