"""Watches a topic as if it were one log: its bounds are the sums over all partitions.

The sum of all ends less the sum of all positions is the number of offsets that are not replicated yet. A partition that
is added later begins at 0 and changes no sum.
"""

from __future__ import annotations

import uuid
from typing import Protocol

from sources.kafka.topic_offsets import TopicBounds
from sources.master import MasterView
from sources.offsets import Offset, OffsetRange


class AskedTopic(Protocol):
    """The part of `sources.kafka.topic.KafkaTopic` that is asked."""

    def bounds(self, known: uuid.UUID | None = None) -> TopicBounds: ...


class WatchedTopic:
    """Adapts `topic` to a `MasterWatch`. `topic_id` is that of the replicated topic, None before it is known."""

    def __init__(self, topic: AskedTopic) -> None:
        self._topic = topic
        self.topic_id: uuid.UUID | None = None
        self.newest: TopicBounds | None = None

    def ask(self) -> TopicBounds:
        """What the topic holds now. Raises Recreated if another topic has its name, and as `KafkaTopic.bounds`."""
        self.newest = self._topic.bounds(self.topic_id)
        return self.newest

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """The sums over the partitions. Raises what `ask` raises."""
        return _sums(self.ask())

    def look(self) -> MasterView:
        """A view without role and retention: retention is configured for the topic, and applies to each partition.

        Uses the newest answer, and asks only if there is none.
        """
        return MasterView(role=None, bounds=_sums(self.newest or self.ask()), retention=None)


def _sums(bounds: TopicBounds) -> OffsetRange:
    held = bounds.held.values()
    return OffsetRange(Offset(sum(one.start for one in held)), Offset(sum(one.end for one in held)))
