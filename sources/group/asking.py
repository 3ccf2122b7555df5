"""Questions that are asked side by side, so that one who does not answer keeps nobody from the others' answers.

Each has a thread of its own, and of each key one question at most is under way: threads that hang are never more than
there are keys, and nobody waits for one of them to end.
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
"""Answers to questions asked at once come at once: they are taken together, as long as others are under way."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[Key]):
    """What a question of `key` came to, a value or an error; `at_s` is when, by `time.monotonic`."""

    key: Key
    value: object
    at_s: float


class Asker(Generic[Key]):
    """For one thread that asks and takes the answers. It keeps no threads between questions."""

    def __init__(self) -> None:
        self._answered = threading.Condition()
        self._answers: list[Answer[Key]] = []
        self._under_way: set[Key] = set()

    def ask(self, key: Key, question: Callable[[], object]) -> bool:
        """Begin to ask, unless a question of `key` is under way or its answer was not taken yet."""
        if key in self._under_way:
            return False
        self._under_way.add(key)
        threading.Thread(target=self._answer, args=(key, question), name=f"asking {key}", daemon=True).start()
        return True

    def is_asking(self, key: Key) -> bool:
        """Whether a question of `key` is under way, or its answer was not taken yet."""
        return key in self._under_way

    def take(self, timeout_s: float) -> list[Answer[Key]]:
        """The answers that have come since the last call; waits up to `timeout_s` for one. Errors are values here."""
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
        except Exception as error:  # noqa: BLE001 - a defect, and no other key's
            value = LogtwinError("asking failed", found=repr(error), hint="This is a defect: please report it.")
        with self._answered:
            self._answers.append(Answer(key, value, time.monotonic()))
            self._answered.notify()
