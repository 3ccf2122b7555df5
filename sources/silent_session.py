"""Sessions where nobody takes a promise, so none is ever made: of files, and of a topic without a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from sources.master import SessionState
from sources.master_topic import PartitionPosition
from sources.offsets import Offset


class SilentSession:
    """`sources.master.Session` with nobody at the other end."""

    @property
    def acknowledged(self) -> Offset | None:
        return None

    @property
    def state(self) -> SessionState:
        return SessionState(None, None, 0, None)

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def acknowledge(self, committed: Offset, mark: int | None = None) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is open."""


class SilentTopicSession:
    """`sources.master_topic.TopicSession` with nobody at the other end."""

    failure = None

    @property
    def acknowledged(self) -> Mapping[int, Offset]:
        return {}

    @property
    def state(self) -> SessionState:
        return SessionState(None, None, 0, None)

    def acknowledge(self, positions: Mapping[int, PartitionPosition]) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is open."""
