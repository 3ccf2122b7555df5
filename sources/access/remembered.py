"""Answers that many want at about the same moment: asked for once, and remembered for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

FRESH_S: Final = 1.0
"""How old what is remembered may be, counted from the question."""

KNOWN_S: Final = 3.0
"""The same for those who would rather not ask than wait."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """What `ask` answers for a key. A failure is of all who wait for it, and is not remembered. From any thread."""

    def __init__(self, ask: Callable[[Key], Value]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._answers: dict[Key, tuple[Future[Value], float]] = {}

    def value(self, key: Key) -> Value:
        """Return the answer, or wait for the one that somebody asks for. Raises what `ask` raises."""
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
