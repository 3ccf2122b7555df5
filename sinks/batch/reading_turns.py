"""Wait for the turns to read of several logs (`Session.reading`) side by side, and no longer than a batch may wait.

A master may take long to say whose turn it is, or never say it. A turn that comes after its log was given up is given
back at once, by the thread that has waited for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress

from sources.errors import LogtwinError, MasterSilent

Turn = AbstractContextManager[None]


def entered(turns: Sequence[Turn], within_s: float | None) -> list[Exception | None]:
    """Enter each of `turns`, and return for each the error that prevented it, or None.

    If `within_s` is None, wait for as long as each takes; otherwise those not entered in that time fail.
    """
    asked = [None if isinstance(turn, nullcontext) else _Asked(turn) for turn in turns]  # nullcontext asks nobody
    ends_s = None if within_s is None else time.monotonic() + within_s
    return [None if one is None else one.answer(ends_s, within_s) for one in asked]


def lingering(errors: Iterable[Exception | None]) -> Exception | None:
    """The first error of reading that may leave a connection behind."""
    return next((one for one in errors if isinstance(one, LogtwinError) and one.is_transient), None)


def leave(turn: Turn, error: BaseException | None) -> None:
    """Give `turn` back. If reading failed in mid-stream its connections may linger, so the session is told `error`."""
    if error is None:
        turn.__exit__(None, None, None)
        return
    with suppress(type(error)):
        turn.__exit__(type(error), error, None)


class _Asked:
    """A turn that a daemon thread of its own asks for.

    Either the answer or giving up comes first: giving up cancels the future, which then takes no answer.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._failure: Future[Exception | None] = Future()
        threading.Thread(target=self._ask, name="turn to read", daemon=True).start()

    def answer(self, ends_s: float | None, within_s: float | None) -> Exception | None:
        """The error that prevented entering; None if the turn was entered."""
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
