"""Whose turn it is to be connected to a master that counts connections: the session's, or the reading tasks'.

Brokers of 5.x with `inSyncReplicas` of 3 or more take every connection for a slave of its own. What must hold there:

    at most one of a replica's connections has been opened and is not known to have ended

The session's thread and the job agree on it here. If the end of a connection is not known (a task failed, a link went
dead), it may be counted until the master has not heard from it for some time (`broker_words.counted_for_s`). During
this quiet time nobody connects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sources.errors import MasterUnreachable


class Turns:
    """The turns of a session and the readers of its job. `wake` makes the session's thread check whose turn it is."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._reader = threading.Lock()  # held by whoever reads or waits to read
        self._readers = False
        self._session_counts = False
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
            with self._changed:
                self._quiet_s = 0.0 if forgotten_after_s is None else forgotten_after_s
            try:
                if forgotten_after_s is not None:
                    self._hand_over()
                with self._noting_a_loss():
                    yield
            finally:
                self._take_back()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _hand_over(self) -> None:
        with self._changed:
            self._readers = True
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: not self._session_counts or self._is_closed)
            self._await_quiet()
            if self._is_closed:
                raise MasterUnreachable("the session was closed while tasks waited for their turn to read")

    @contextmanager
    def _noting_a_loss(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with self._changed:
                self._lost_at = time.monotonic()
            raise

    def _take_back(self) -> None:
        with self._changed:
            self._readers = False
            self._changed.notify_all()

    # The session's thread.

    @property
    def are_taken(self) -> bool:
        """Whether the master counts connections, as far as the job has asked it."""
        return self._quiet_s > 0

    @property
    def are_readers(self) -> bool:
        return self._readers

    def await_own(self) -> bool:
        """Wait for the session's turn; return False if the session was closed before."""
        with self._changed:
            while not self._is_own() and not self._is_closed:
                self._changed.wait_for(lambda: not self._readers or self._is_closed)
                self._await_quiet()
            return self._is_own()

    def begin(self) -> bool:
        """Whether the session may connect or report; ask before each connection and each report. From the first time on
        the connection counts, because a broker lists it before it has reported.
        """
        with self._changed:
            self._session_counts = self._session_counts or self._is_own()
            return self._session_counts and not self._readers

    def end(self, *, is_known: bool) -> None:
        """Note that the session's connection has ended; `is_known` says whether the master knows, too."""
        with self._changed:
            if self._session_counts and not is_known:
                self._lost_at = time.monotonic()
            self._session_counts = False
            self._changed.notify_all()

    # With the lock held.

    def _is_own(self) -> bool:
        return not self._readers and self._quiet_left_s() <= 0

    def _quiet_left_s(self) -> float:
        return self._lost_at + self._quiet_s - time.monotonic() if self._quiet_s else 0.0

    def _await_quiet(self) -> None:
        while not self._is_closed and (left_s := self._quiet_left_s()) > 0:
            self._changed.wait(left_s)
