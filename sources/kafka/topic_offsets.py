"""Positions in all partitions of a topic: how a checkpoint keeps them, and how far the next batch takes them. Pure.

A partition without a position was added later, and starts at 0. So none of its records is left out, whenever it is
noticed and however often a batch is planned again. This also holds for a topic that is read from its end.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sources.bounds import check_position
from sources.errors import ConfigurationError
from sources.offsets import LogId, Offset, OffsetRange, partition_log


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """The bounds of each partition of the topic with id `topic_id`, by number."""

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
    """The next offset to read of each partition (`next`), in the topic with id `topic_id`."""

    topic_id: uuid.UUID
    next: Mapping[int, Offset]

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TopicOffsets:
        """Return the positions with these values. Raises ConfigurationError for what `to_json` cannot have made."""
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
        """Return the positions as Spark stores them in its checkpoint. It compares their text, so there is one form."""
        return {"topic": str(self.topic_id), "next": {str(number): self.next[number] for number in sorted(self.next)}}

    def at(self, partition: int) -> Offset:
        return self.next.get(partition, Offset(0))

    def up_to(self, last: TopicOffsets) -> TopicOffsets:
        """Return these positions, limited to `last`, without the partitions that it does not know."""
        return TopicOffsets(
            self.topic_id, {number: min(at, last.at(number)) for number, at in self.next.items() if number in last.next}
        )

    def since(self, start: TopicOffsets) -> dict[int, OffsetRange]:
        """Return what lies between `start` and these positions, by partition."""
        return {number: OffsetRange(start.at(number), at) for number, at in sorted(self.next.items())}

    def advanced(self, ends: TopicOffsets, most: int | None) -> TopicOffsets:
        """Move towards `ends` by `most` offsets in total (None: all the way), and never back."""
        backlogs = {number: max(0, end - self.at(number)) for number, end in ends.next.items()}
        steps = backlogs if most is None else spread(backlogs, most)
        positions = {number: Offset(self.at(number) + step) for number, step in steps.items()}
        return TopicOffsets(self.topic_id, {**self.next, **positions})

    def check_held(self, bounds: TopicBounds, log: LogId) -> None:
        """Check that reading can go on from here. Raises BelowMinimum or AboveMaximum, of the first partition that it
        cannot; `log` is the topic's log id.
        """
        for number in sorted({*self.next, *bounds.held}):
            check_position(self.at(number), bounds.held.get(number), log=partition_log(log, number))


def spread(backlogs: Mapping[int, int], most: int) -> dict[int, int]:
    """Return how far each partition goes: `most` offsets in total, in proportion to the backlogs.

    A partition with a backlog gets at least one, even if that exceeds `most`.
    """
    waiting = {number: backlog for number, backlog in backlogs.items() if backlog}
    rest = sum(waiting.values()) - len(waiting)
    if rest <= most - len(waiting):
        return dict(backlogs)
    granted = max(0, most - len(waiting))
    steps = {number: 1 + (backlog - 1) * granted // rest for number, backlog in waiting.items()}
    return {number: steps.get(number, 0) for number in backlogs}
