"""Questions asked side by side, so that one that gets no answer holds up no other.

A question that can be asked in steps needs no thread: whoever waits for answers takes the steps of all of them, at a
third of the cost. A few threads take the other questions in turn: more cost more than they give if masters answer at
once. While the questions that wait would wait for long, the threads are doubled, up to a limit if masters are only far
away, and up to one per question if none of them answers. At most one question per key is pending. So there are never
more hanging threads than keys, and nobody waits for one of them to end.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sources.steps import Awaited, Steps

Key = TypeVar("Key")
Question = Callable[[], object]

SWARM_S: Final = 0.002
MOST_SWARM_S: Final = 0.02
"""Questions asked together get answers at about the same time, so these are taken together while others are pending:
for a longer time if there are hundreds."""

FEW: Final = 4
MANY: Final = 256
IN_S: Final = 0.2
"""In this time all that wait should have been asked: part of the half second that a batch waits for a poll."""

STEPS_S: Final = 0.02
"""The longest wait for steps: for answers that threads bring meanwhile."""

GROW_S: Final = 0.03
"""How often to check whether there are enough threads."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[Key]):
    """The answer to the question of `key`, a value or the exception that it raised.

    `at_s` of `time.monotonic` is when it came; of a question in steps when it was taken, which may be long after.
    """

    key: Key
    value: object
    at_s: float


@dataclass(slots=True)
class _Stepping(Generic[Key]):
    """A question that is asked in `steps`, and what the next of them waits for."""

    key: Key
    question: Question
    steps: Steps[object]
    awaited: Awaited | None = None


class Asker(Generic[Key]):
    """Asks questions in the background for one thread, which also takes the answers."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._asked = threading.Condition(lock)
        self._answered = threading.Condition(lock)
        self._questions: deque[tuple[Key, Question]] = deque()
        self._answers: list[Answer[Key]] = []
        self._under_way: dict[Key, float | None] = {}  # since when each is asked; None while it waits for a thread
        self._stepping: dict[int, _Stepping[Key]] = {}  # by the number of its socket
        self._poll = select.poll()  # of these sockets
        self._threads = 0
        self._idle = 0
        self._begun = 0  # questions that threads have taken since `_checked_s`
        self._checked_s = 0.0

    def ask(self, key: Key, question: Question, steps: Steps[object] | None = None) -> bool:
        """Begin to ask, unless a question of `key` is pending or its answer was not yet taken.

        With `steps`, `question` is asked only if their outcome is None.
        """
        if key in self._under_way:
            return False
        if steps is None:
            self._hand_over(key, question)
        else:
            self._under_way[key] = time.monotonic()
            self._step(_Stepping(key, question, steps))
        return True

    def _hand_over(self, key: Key, question: Question) -> None:
        """Let a thread ask."""
        with self._asked:
            self._under_way[key] = None
            if not self._questions:
                self._begun, self._checked_s = 0, time.monotonic()
            self._questions.append((key, question))
            if self._idle:
                self._asked.notify()
            elif self._threads < FEW:
                self._start()

    def _step(self, one: _Stepping[Key], failure: Exception | None = None) -> None:
        """Take the next step of a question, or tell it of a `failure` to wait for."""
        try:
            one.awaited = next(one.steps) if failure is None else one.steps.throw(failure)
        except StopIteration as end:
            if end.value is None:
                self._hand_over(one.key, one.question)
            else:
                self._answer(one.key, end.value)
        except Exception as error:  # noqa: BLE001 - it is this question's
            self._answer(one.key, error)
        else:
            number = one.awaited.sock.fileno()
            self._stepping[number] = one
            self._poll.register(number, select.POLLIN)

    def _answer(self, key: Key, value: object) -> None:
        with self._answered:
            self._answers.append(Answer(key, value, time.monotonic()))
            self._answered.notify()

    def is_asking(self, key: Key) -> bool:
        """Whether a question of `key` is pending, or its answer was not yet taken."""
        return key in self._under_way

    def asked_s(self, key: Key) -> float | None:
        """Return when the pending question of `key` was put; None while it waits for a thread, or if there is none."""
        return self._under_way.get(key)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for an answer to take. Returns whether there is one."""
        self._await(timeout_s, lambda: bool(self._answers))
        if self._answers and timeout_s > 0 and (swarm := len(self._under_way) - len(self._answers)) > 0:
            swarm_s = min(SWARM_S * (1 + swarm / 50), MOST_SWARM_S)
            self._await(swarm_s, lambda: len(self._answers) == len(self._under_way))
        return bool(self._answers)

    def _await(self, timeout_s: float, is_done: Callable[[], bool]) -> None:
        """Wait up to `timeout_s` until `is_done`; take steps meanwhile, and start threads where they are too few."""
        ends_s = time.monotonic() + timeout_s
        while True:
            self._take_steps(0.0 if is_done() else min(ends_s - time.monotonic(), STEPS_S))
            with self._answered:
                self._grow()
                if is_done() or (left_s := ends_s - time.monotonic()) <= 0:
                    return
                if not self._stepping:
                    self._answered.wait(min(left_s, GROW_S) if self._questions else left_s)

    def _take_steps(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for what questions in steps wait for, and go on with them."""
        if not self._stepping:
            return
        for number, _ in self._poll.poll(max(timeout_s, 0.0) * 1000):
            self._step(self._stepped(number))
        now_s = time.monotonic()
        for number in [at for at, one in self._stepping.items() if one.awaited and one.awaited.until_s <= now_s]:
            self._step(self._stepped(number), TimeoutError())

    def _stepped(self, number: int) -> _Stepping[Key]:
        """Return the question that waited for that socket; it waits no longer."""
        self._poll.unregister(number)
        return self._stepping.pop(number)

    def take(self, timeout_s: float) -> list[Answer[Key]]:
        """Return the answers since the last call; wait up to `timeout_s` for one. Errors are values here."""
        self.wait(timeout_s)
        with self._answered:
            taken, self._answers = self._answers, []
        for answer in taken:
            del self._under_way[answer.key]
        return taken

    def _grow(self) -> None:
        """Double the threads if those that there are would take too long for what waits. The lock is held."""
        now_s = time.monotonic()
        passed_s = now_s - self._checked_s
        if not self._questions or passed_s < GROW_S:
            return
        begun, self._begun, self._checked_s = self._begun, 0, now_s
        if begun == 0 or (self._threads < MANY and len(self._questions) / begun * passed_s > IN_S):
            for _ in range(min(self._threads, len(self._questions))):
                self._start()

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name="asks masters", daemon=True).start()

    def _run(self) -> None:
        while (question := self._next()) is not None:
            key, ask = question
            self._answer(key, _outcome(ask))

    def _next(self) -> tuple[Key, Question] | None:
        """Wait for the next question; None if the thread is to end, because enough others wait."""
        with self._asked:
            if not self._questions and self._idle >= FEW:
                self._threads -= 1
                return None
            self._idle += 1
            self._asked.wait_for(lambda: self._questions)
            self._idle -= 1
            self._begun += 1
            key, question = self._questions.popleft()
            self._under_way[key] = time.monotonic()
            return key, question


def _outcome(question: Question) -> object:
    try:
        return question()
    except Exception as error:  # noqa: BLE001 - it must not affect other keys
        return error
