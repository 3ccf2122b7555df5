"""A topic as a job watches it: what all its partitions hold, as the bounds of one log.

Offsets of partitions are added up: how far the sum of all positions is behind the sum of all ends is how many offsets
are not replicated yet. A partition that comes later begins at 0 and changes no sum.
"""

from __future__ import annotations

import uuid
from typing import Protocol

from sources.kafka.topic_offsets import TopicBounds
from sources.master import MasterView
from sources.offsets import Offset, OffsetRange


class AskedTopic(Protocol):
    """As `sources.kafka.topic.KafkaTopic` answers."""

    def bounds(self, known: uuid.UUID | None = None) -> TopicBounds: ...


class WatchedTopic:
    """`topic`, for a `MasterWatch`. `topic_id` is the one that is meant, None before anybody knows."""

    def __init__(self, topic: AskedTopic) -> None:
        self._topic = topic
        self.topic_id: uuid.UUID | None = None
        self.newest: TopicBounds | None = None

    def ask(self) -> TopicBounds:
        """What the topic holds now. Raises Recreated where another one has its name, and as `KafkaTopic.bounds`."""
        self.newest = self._topic.bounds(self.topic_id)
        return self.newest

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """The sums over the partitions. Raises as `ask` does."""
        return _sums(self.ask())

    def look(self) -> MasterView:
        """Nothing that a broker says of itself is of use here: retention is the topic's, and of each partition.

        So nobody is asked again who was asked before.
        """
        return MasterView(role=None, bounds=_sums(self.newest or self.ask()), retention=None)


def _sums(bounds: TopicBounds) -> OffsetRange:
    held = bounds.held.values()
    return OffsetRange(Offset(sum(one.start for one in held)), Offset(sum(one.end for one in held)))
