"""What the planner of a group asks of a topic's brokers: the bounds of all partitions, over one connection."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sources.errors import LogtwinError
from sources.group.lookout import Found, LookRequest, LookResult
from sources.kafka.held import check_position
from sources.kafka.log import KafkaLog
from sources.kafka.options import ReplicatedTopicOptions
from sources.kafka.topic import KafkaTopic, open_topic
from sources.master_topic import partition_log, topic_and_number
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import parse_options


class TopicLookout:
    """The `sources.group.lookout.Lookout` of a topic. The job lists a partition once it has a position."""

    def __init__(self, topic: KafkaTopic) -> None:
        self._topic = topic

    @property
    def master_id(self) -> str:
        return str(self._topic.log_id)

    def log(self, log_id: str) -> KafkaLog | None:
        topic, number = topic_and_number(LogId.parse(log_id))
        return KafkaLog(topic=self._topic, number=number) if topic == self._topic.log_id else None

    def look(self, wanted: Mapping[str, LookRequest]) -> Found:
        """Look, also at partitions that are not `wanted`: the job may not know of them yet.

        Raises Recreated if the topic is not the one that the positions are of, and as `KafkaTopic.bounds`.
        """
        identity = next((one.place.identity for one in wanted.values() if one.place.identity is not None), None)
        held = self._topic.bounds(None if identity is None else uuid.UUID(identity)).held
        others = {str(partition_log(self._topic.log_id, at)): LookResult(one, one.start) for at, one in held.items()}
        return others | {log_id: self._seen(log_id, one, held) for log_id, one in wanted.items()}

    def is_waited_for(self) -> bool:
        """Return False: no producer waits for a consumer group."""
        return False

    @property
    def may_begin_later(self) -> bool:
        """True, without effect: each partition has a position."""
        return True

    def _seen(self, log_id: str, wanted: LookRequest, held: Mapping[int, OffsetRange]) -> LookResult | LogtwinError:
        number, at = topic_and_number(LogId.parse(log_id))[1], wanted.place.position or Offset(0)
        try:
            check_position(number, at, held, log=log_id)
        except LogtwinError as error:
            return error
        return LookResult(held[number], at)


def lookouts(topics: Sequence[Mapping[str, Any]]) -> list[TopicLookout]:
    """Return the lookouts of topics given by options. Raises ConfigurationError with the topic's number, from 0."""
    return [
        TopicLookout(open_topic(parse_options(ReplicatedTopicOptions, one, where=f"topics[{number}]")))
        for number, one in enumerate(topics)
    ]
