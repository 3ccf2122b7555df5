"""Positions in all partitions of a topic: how a checkpoint keeps them, and how far the next batch takes them. Pure.

A partition without a position was added later, and starts at 0: whenever it is noticed, and however often a batch is
planned again, none of its records is left out. That of a topic which is read from its end, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sources.errors import ConfigurationError, OffsetOutOfRange
from sources.kafka.held import check_position
from sources.master_topic import partition_log
from sources.offsets import LogId, Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """What the topic that `topic_id` names holds of each partition, by the partition's number."""

    topic_id: uuid.UUID
    held: Mapping[int, OffsetRange]

    @property
    def earliest(self) -> TopicOffsets:
        return TopicOffsets(self.topic_id, {number: held.start for number, held in self.held.items()})

    @property
    def latest(self) -> TopicOffsets:
        return TopicOffsets(self.topic_id, {number: held.end for number, held in self.held.items()})


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Of each partition the next offset to read; `next` of the topic that `topic_id` names."""

    topic_id: uuid.UUID
    next: Mapping[int, Offset]

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TopicOffsets:
        """The inverse of `to_json`. Raises ConfigurationError for what it cannot have made."""
        try:
            positions = {int(number): Offset(int(offset)) for number, offset in stored["next"].items()}
            return cls(uuid.UUID(stored["topic"]), positions)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise ConfigurationError(
                "the checkpoint has no positions of a Kafka topic",
                expected='{"topic": <id>, "next": {<partition>: <offset>, …}}',
                found=stored,
                hint="Is it of another stream?",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """As Spark stores it in its checkpoint; compared as text, so there is one form."""
        return {"topic": str(self.topic_id), "next": {str(number): self.next[number] for number in sorted(self.next)}}

    def at(self, partition: int) -> Offset:
        """The position in a partition."""
        return self.next.get(partition, Offset(0))

    def up_to(self, last: TopicOffsets) -> TopicOffsets:
        """These, nowhere past `last`, without the partitions that it does not know."""
        return TopicOffsets(
            self.topic_id, {number: min(at, last.at(number)) for number, at in self.next.items() if number in last.next}
        )

    def since(self, start: TopicOffsets) -> dict[int, OffsetRange]:
        """What lies between `start` and these, of each partition."""
        return {number: OffsetRange(start.at(number), at) for number, at in sorted(self.next.items())}

    def advanced(self, ends: TopicOffsets, most: int | None) -> TopicOffsets:
        """On from these towards `ends`, by `most` offsets together; None: all the way. Never back."""
        backlogs = {number: max(0, end - self.at(number)) for number, end in ends.next.items()}
        steps = backlogs if most is None else spread(backlogs, most)
        positions = {number: Offset(self.at(number) + step) for number, step in steps.items()}
        return TopicOffsets(self.topic_id, {**self.next, **positions})

    def check_held(self, bounds: TopicBounds, log: LogId) -> None:
        """Make sure that reading can go on from here. Raises the first of `not_held`."""
        for error in self.not_held(bounds, log).values():
            raise error

    def not_held(self, bounds: TopicBounds, log: LogId) -> dict[int, OffsetOutOfRange]:
        """Of each partition in which reading cannot go on from here why not: BelowMinimum or AboveMaximum.

        `log` is the topic's, of which the partitions' are made: these are what the errors name.
        """
        found: dict[int, OffsetOutOfRange] = {}
        for number in sorted({*self.next, *bounds.held}):
            try:
                check_position(number, self.at(number), bounds.held, log=partition_log(log, number))
            except OffsetOutOfRange as error:
                found[number] = error
        return found


def spread(backlogs: Mapping[int, int], most: int) -> dict[int, int]:
    """How far each partition goes: `most` offsets together, in proportion to its backlog.

    One that has any gets at least one, also where that makes more than `most`.
    """
    waiting = {number: backlog for number, backlog in backlogs.items() if backlog}
    rest = sum(waiting.values()) - len(waiting)
    if rest <= most - len(waiting):
        return dict(backlogs)
    granted = max(0, most - len(waiting))
    steps = {number: 1 + (backlog - 1) * granted // rest for number, backlog in waiting.items()}
    return {number: steps.get(number, 0) for number in backlogs}
