"""Questions asked side by side, so that one that gets no answer holds up no other.

Each question has a thread of its own, and at most one question per key is pending. So there are never more hanging
threads than keys, and nobody waits for one of them to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sources.errors import LogtwinError

Key = TypeVar("Key")

SWARM_S: Final = 0.002
"""Questions asked together get answers at about the same time, so these are taken together while others are pending."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[Key]):
    """The answer to the question of `key`, a value or an error; `at_s` is when it came, by `time.monotonic`."""

    key: Key
    value: object
    at_s: float


class Asker(Generic[Key]):
    """Asks questions in the background for one thread, which also takes the answers. Keeps no idle threads."""

    def __init__(self) -> None:
        self._answered = threading.Condition()
        self._answers: list[Answer[Key]] = []
        self._under_way: set[Key] = set()

    def ask(self, key: Key, question: Callable[[], object]) -> bool:
        """Begin to ask, unless a question of `key` is pending or its answer was not yet taken."""
        if key in self._under_way:
            return False
        self._under_way.add(key)
        threading.Thread(target=self._answer, args=(key, question), name=f"asking {key}", daemon=True).start()
        return True

    def is_asking(self, key: Key) -> bool:
        """Whether a question of `key` is pending, or its answer was not yet taken."""
        return key in self._under_way

    def take(self, timeout_s: float) -> list[Answer[Key]]:
        """Return the answers since the last call; wait up to `timeout_s` for one. Errors are values here."""
        with self._answered:
            self._answered.wait_for(lambda: self._answers, timeout=max(timeout_s, 0))
            if self._answers and timeout_s > 0:
                self._answered.wait_for(lambda: len(self._answers) == len(self._under_way), timeout=SWARM_S)
            taken, self._answers = self._answers, []
        self._under_way -= {answer.key for answer in taken}
        return taken

    def _answer(self, key: Key, question: Callable[[], object]) -> None:
        value: object
        try:
            value = question()
        except LogtwinError as error:
            value = error
        except Exception as error:  # noqa: BLE001 - a defect, which must not affect other keys
            value = LogtwinError("asking failed", found=repr(error), hint="This is a defect: please report it.")
        with self._answered:
            self._answers.append(Answer(key, value, time.monotonic()))
            self._answered.notify()
