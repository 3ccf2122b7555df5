"""A session that makes no promises because nobody takes them: for files, and for a topic without a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from sources.master import Committed, MasterLog, SessionState
from sources.offsets import LogId, Offset


class SilentSession:
    """A `sources.master.Session` with nobody at the other end."""

    failure = None

    @property
    def acknowledged(self) -> Mapping[LogId, Offset]:
        return {}

    @property
    def state(self) -> SessionState:
        return SessionState(None, None, 0, None)

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reader_of(self, log: MasterLog) -> MasterLog:
        return log

    def acknowledge(self, positions: Mapping[LogId, Committed]) -> None:
        """Do nothing: nobody listens."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
