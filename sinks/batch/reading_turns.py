"""The turns to read of several logs (`Session.reading`), asked for side by side, and for no longer than a batch waits.

A master may take its time to say whose turn it is, or never say it. Who is given up is not left behind: a turn that
comes too late is given back at once, in the thread that has waited for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress

from sources.errors import LogtwinError, MasterSilent

Turn = AbstractContextManager[None]


def entered(turns: Sequence[Turn], within_s: float | None) -> list[Exception | None]:
    """Enter each; what kept one from that. None `within_s` waits for as long as each takes."""
    asked = [None if isinstance(turn, nullcontext) else _Asked(turn) for turn in turns]  # nullcontext asks nobody
    ends_s = None if within_s is None else time.monotonic() + within_s
    return [None if one is None else one.answer(ends_s, within_s) for one in asked]


def leave(turn: Turn, error: BaseException | None) -> None:
    """Give it back. Where reading failed in mid-stream its connections may linger, and the session has to know."""
    if error is None:
        turn.__exit__(None, None, None)
        return
    with suppress(type(error)):
        turn.__exit__(type(error), error, None)


class _Asked:
    """A turn that is asked for in a thread of its own, which ends with the process.

    Of two, the answer and giving up, one comes first: who gives up cancels the future, which then takes no answer.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._failure: Future[Exception | None] = Future()
        threading.Thread(target=self._ask, name="turn to read", daemon=True).start()

    def answer(self, ends_s: float | None, within_s: float | None) -> Exception | None:
        """What kept one from entering; None inside."""
        try:
            return self._failure.result(None if ends_s is None else max(0.0, ends_s - time.monotonic()))
        except TimeoutError:
            return _silent(within_s or 0.0) if self._failure.cancel() else self._failure.result()

    def _ask(self) -> None:
        failure: Exception | None = None
        try:
            self._turn.__enter__()
        except Exception as error:  # noqa: BLE001 - the others' turns are not to be lost over it
            failure = error
        try:
            self._failure.set_result(failure)
        except InvalidStateError:
            if failure is None:
                leave(self._turn, None)


def _silent(within_s: float) -> LogtwinError:
    return MasterSilent(
        "the master did not say in time whether it is this replica's turn to read",
        expected=f"an answer within {within_s:g} s",
        found="none",
        hint="Check how busy it is, and the way to it. It is given more time when it is tried again.",
    )
