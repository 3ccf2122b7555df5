"""What is kept between questions, for whoever asks next: open connections, and answers a moment old.

Otherwise each look at a master would connect and log in again. Connections belong to this process and end with it. One
that is not whole any more is replaced, so the credentials are read again then; one over which a question has failed is
not kept.
"""

from __future__ import annotations

import atexit
import resource
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

MOST: Final = 8
"""The most connections kept per peer. If all are in use, a further one is made, and closed afterwards."""

IDLE_S: Final = 10.0
"""How long an unused connection is kept: longer than from one look to the next. Brokers themselves close connections
that are idle for minutes."""

_SWEEP_S: Final = 1.0
_PART_OF_FILES: Final = 8
"""Kept connections take no more than this part of the files that the process may have open."""


class Connected(Protocol):
    """A connection that can be kept."""

    def is_whole(self) -> bool:
        """Whether it can take another question, as far as is known here. Raises nothing."""


Key = TypeVar("Key", bound=Hashable)
Connection = TypeVar("Connection", bound=Connected)


@dataclass(eq=False, slots=True)
class _Open(Generic[Connection]):
    connection: Connection
    closing: ExitStack
    since_s: float


class KeptConnections(Generic[Key, Connection]):
    """Keeps connections by peer: `connect` makes one, which is closed when its context is left. For any thread."""

    def __init__(self, connect: Callable[[Key], AbstractContextManager[Connection]]) -> None:
        self._connect = connect
        self._waiting: dict[Key, list[_Open[Connection]]] = {}
        self._count = 0
        self._swept_s = 0.0
        self._lock = threading.Lock()
        atexit.register(self.close)

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            out = [one for waiting in self._waiting.values() for one in waiting]
            self._waiting.clear()
            self._count = 0
        for one in out:
            one.closing.close()

    @contextmanager
    def kept(self, peer: Key) -> Iterator[Connection]:
        """Give a connection to `peer`, and keep it, unless what is done inside fails. Raises what `connect` raises."""
        with self._kept(peer, self._take(peer) or self._open(peer)) as connection:
            yield connection

    def if_kept(self, peer: Key) -> AbstractContextManager[Connection] | None:
        """Give a connection to `peer` as `kept` does, if there is one already that nobody uses."""
        opened = self._take(peer)
        return None if opened is None else self._kept(peer, opened)

    @contextmanager
    def _kept(self, peer: Key, opened: _Open[Connection]) -> Iterator[Connection]:
        with ExitStack() as failing:
            failing.push(opened.closing)
            yield opened.connection
            failing.pop_all()
        self._keep(peer, opened)

    def _open(self, peer: Key) -> _Open[Connection]:
        with ExitStack() as closing:
            connection = closing.enter_context(self._connect(peer))
            return _Open(connection, closing.pop_all(), 0.0)

    def _take(self, peer: Key) -> _Open[Connection] | None:
        """Return the connection that was used last; close those that broke."""
        while True:
            with self._lock:
                waiting = self._waiting.get(peer)
                found = waiting.pop() if waiting else None
                self._count -= found is not None
            if found is None or found.connection.is_whole():
                return found
            found.closing.close()

    def _keep(self, peer: Key, opened: _Open[Connection]) -> None:
        opened.since_s = now_s = time.monotonic()
        with self._lock:
            waiting = self._waiting.setdefault(peer, [])
            out = self._idle(now_s)
            if len(waiting) < MOST and self._count < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _PART_OF_FILES:
                waiting.append(opened)
                self._count += 1
            else:
                out.append(opened)
        for one in out:
            one.closing.close()

    def _idle(self, now_s: float) -> list[_Open[Connection]]:
        """Take out the connections that nobody has used for long; look at all of them only once a second."""
        if now_s < self._swept_s + _SWEEP_S:
            return []
        self._swept_s = now_s
        out: list[_Open[Connection]] = []
        for waiting in self._waiting.values():
            idle = [one for one in waiting if now_s - one.since_s > IDLE_S]
            waiting[:] = [one for one in waiting if one not in idle]
            out += idle
        self._count -= len(out)
        return out


FRESH_S: Final = 1.0
"""How old what is remembered may be, counted from the question."""

KNOWN_S: Final = 3.0
"""The same for those who would rather not ask than wait."""

Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Answers of `ask`, by key. A failure goes to all who wait for it, and is not remembered. From any thread."""

    def __init__(self, ask: Callable[[Key], Value]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._answers: dict[Key, tuple[Future[Value], float]] = {}

    def value(self, key: Key) -> Value:
        """Return the answer, or wait for the one that is under way. Raises what `ask` raises."""
        mine: Future[Value] = Future()
        now_s = time.monotonic()
        with self._lock:
            answer, asked_s = self._answers.get(key, (mine, now_s))
            if now_s - asked_s > FRESH_S:
                answer = mine
            if answer is mine:
                self._answers[key] = mine, now_s
        if answer is mine:
            try:
                mine.set_result(self._ask(key))
            except BaseException as error:
                self.forget()
                mine.set_exception(error)
                raise
        return answer.result()

    def known(self, key: Key) -> Value | None:
        """Return the answer if it is there. Asks nobody."""
        answer, asked_s = self._answers.get(key, (None, 0.0))
        if answer is None or not answer.done() or time.monotonic() - asked_s > KNOWN_S:
            return None
        return None if answer.exception() else answer.result()

    def forget(self) -> None:
        """Ask anew from now on."""
        with self._lock:
            self._answers.clear()
