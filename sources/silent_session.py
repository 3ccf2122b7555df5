"""The session of a log that is read from files: nobody there takes a promise, so none is ever made."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from sources.master import SessionState
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

    def acknowledge(self, committed: Offset) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is open."""
