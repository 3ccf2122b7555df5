"""Turns to be connected to a master that counts connections: of the session, or of the reading tasks.

Brokers of 5.x with `inSyncReplicas` of 3 or more take every connection for a slave of its own. What must hold there:

    at most one of a replica's connections has been opened and is not known to have ended

The session's thread and the job take turns here. If the end of a connection is not known (a task failed, a link went
dead), the master may count it until it has not heard from it for some time (`broker_words.counted_for_s`). During this
quiet time nobody connects.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from sources.errors import MasterUnreachable


class Turn(enum.Enum):
    """Whose turn it is to be connected."""

    NOBODYS = "nobody's"  # no connection is open; of one that was, the end may not be known
    SESSIONS = "the session's"  # it may have a connection open
    ENDING = "ending"  # it may still have one, and readers wait for its end
    READERS = "the readers'"


class TurnStep(enum.Enum):
    """An action of the session or of its readers."""

    BEGIN = "the session begins"
    END = "the session's connection has ended"
    ASK = "readers ask for the turn"
    GIVE_BACK = "readers have no use for it any more"


LEADS_TO: Mapping[Turn, Mapping[TurnStep, Turn]] = {
    Turn.NOBODYS: {TurnStep.BEGIN: Turn.SESSIONS, TurnStep.ASK: Turn.READERS},
    Turn.SESSIONS: {TurnStep.END: Turn.NOBODYS, TurnStep.ASK: Turn.ENDING},
    Turn.ENDING: {TurnStep.END: Turn.READERS, TurnStep.GIVE_BACK: Turn.SESSIONS},
    Turn.READERS: {TurnStep.GIVE_BACK: Turn.NOBODYS},
}
"""The turn after each step. A step that is not listed changes nothing: a session is refused where readers want the
turn, it ends what never began, and readers whom nobody counts give back what they did not ask for."""


class NoTurn(nullcontext[None]):
    """Reading where the master does not count connections: nobody waits to enter it, so it may be left unentered.
    Then `ended` is called, with whether an error has ended it.
    """

    def __init__(self, ended: Callable[[bool], None]) -> None:
        super().__init__()
        self._ended = ended

    def __exit__(self, *error: object) -> None:
        self._ended(error[0] is not None)


class Turns:
    """The turns of a session and the readers of its job. `wake` makes the session's thread check whose turn it is."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._reader = threading.Lock()  # held by whoever reads or waits to read
        self._turn = Turn.NOBODYS
        self._lost_at = float("-inf")  # when a connection was last left without knowing that it ended
        self._quiet_s = 0.0  # 0 while the master does not count connections
        self._is_closed = False

    # The job's side.

    @contextmanager
    def of_readers(self, forgotten_after_s: float | None) -> Iterator[None]:
        """Give the turn to the tasks that read inside. With None, nobody counts connections, so they need no turn.

        Waits until the session's connection has ended, the quiet time is over, and nothing else of the job reads.
        Another thread may leave this context. Raises MasterUnreachable if the session is closed meanwhile.
        """
        with self._reader:
            self.learn(forgotten_after_s)
            try:
                if forgotten_after_s is not None:
                    self._hand_over()
                with self._noting_a_loss():
                    yield
            finally:
                self._step(TurnStep.GIVE_BACK)

    def lose(self) -> None:
        """Note that readers have failed: their connections may linger, if they took no turn, too."""
        with self._changed:
            self._lost_at = time.monotonic()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _hand_over(self) -> None:
        self._step(TurnStep.ASK)
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: self._turn is Turn.READERS or self._is_closed)
            self._await_quiet()
            if self._is_closed:
                raise MasterUnreachable("the session was closed while tasks waited for their turn to read")

    @contextmanager
    def _noting_a_loss(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.lose()
            raise

    # The session's thread.

    @property
    def are_taken(self) -> bool:
        """Whether the master counts connections, as far as it was asked."""
        return self._quiet_s > 0

    def learn(self, forgotten_after_s: float | None) -> None:
        """Note for how long the master counts a silent connection; None if it counts none."""
        with self._changed:
            self._quiet_s = 0.0 if forgotten_after_s is None else forgotten_after_s

    @property
    def are_readers(self) -> bool:
        return self._turn in (Turn.ENDING, Turn.READERS)

    def await_own(self) -> bool:
        """Wait for the session's turn; return False if the session was closed before."""
        with self._changed:
            while not self._is_own() and not self._is_closed:
                self._changed.wait_for(lambda: not self.are_readers or self._is_closed)
                self._await_quiet()
            return self._is_own()

    def begin(self) -> bool:
        """Whether the session may connect or report; ask before each connection and each report. From the first time on
        the connection counts, because a broker lists it before it has reported.
        """
        with self._changed:
            if self._is_own():
                self._step(TurnStep.BEGIN)
            return self._turn is Turn.SESSIONS

    def end(self, *, is_known: bool) -> None:
        """Note that the session's connection has ended; `is_known` says whether the master knows, too."""
        with self._changed:
            if self._turn in (Turn.SESSIONS, Turn.ENDING) and not is_known:
                self._lost_at = time.monotonic()
            self._step(TurnStep.END)

    # Of both.

    def _step(self, step: TurnStep) -> None:
        with self._changed:
            self._turn = LEADS_TO[self._turn].get(step, self._turn)
            self._changed.notify_all()

    # With the lock held.

    def _is_own(self) -> bool:
        return not self.are_readers and self._quiet_left_s() <= 0

    def _quiet_left_s(self) -> float:
        return self._lost_at + self._quiet_s - time.monotonic() if self._quiet_s else 0.0

    def _await_quiet(self) -> None:
        while not self._is_closed and (left_s := self._quiet_left_s()) > 0:
            self._changed.wait(left_s)
