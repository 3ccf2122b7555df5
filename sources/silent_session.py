"""Sessions that make no promises because nobody takes them: for files, and for a topic without a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from sources.master import SessionState
from sources.master_topic import PartitionPosition
from sources.offsets import Offset


class SilentSession:
    """A `sources.master.Session` with nobody at the other end."""

    @property
    def acknowledged(self) -> Offset | None:
        return None

    @property
    def state(self) -> SessionState:
        return SessionState(None, None, 0, None)

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def acknowledge(self, committed: Offset, mark: int | None = None) -> None:
        """Do nothing: nobody listens."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class SilentTopicSession:
    """A `sources.master_topic.TopicSession` with nobody at the other end."""

    failure = None

    @property
    def acknowledged(self) -> Mapping[int, Offset]:
        return {}

    @property
    def state(self) -> SessionState:
        return SessionState(None, None, 0, None)

    def acknowledge(self, positions: Mapping[int, PartitionPosition]) -> None:
        """Do nothing: nobody listens."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
