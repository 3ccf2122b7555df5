"""The Kafka topics whose status is wanted, and what their brokers answer. Importing it loads the Kafka client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pipeline.config.configuration import Config
from pipeline.inspect.asked import MasterAnswer, Subject
from pipeline.inspect.selection import held_topics
from sinks.state.log_state import LogState
from sources.errors import LogtwinError
from sources.kafka.format.transactions import Isolation
from sources.kafka.metadata import fetched, held_back
from sources.kafka.options import ReplicatedTopicOptions
from sources.kafka.topic import KafkaTopic, open_topic
from sources.offsets import OffsetRange

_PATIENCE_MS: Final = 2000  # somebody waits for the answer


def topics_to_ask(config: Config) -> list[Subject]:
    """The topics of a configuration, with the states of their partitions in the table now. Raises ReplicaError."""
    return [subject(one.options, one.states) for one in held_topics(config)]


def subject(options: ReplicatedTopicOptions, states: Mapping[int, LogState]) -> Subject:
    topic = replace(open_topic(options), patience_ms=_PATIENCE_MS)
    return Subject(topic.id, topic.role, topic.address, states, lambda: _ask(topic), has_partitions=True)


def _ask(topic: KafkaTopic) -> MasterAnswer:
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
