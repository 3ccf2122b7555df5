"""Many who want to commit at about the same time, and one commit for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class GroupCommit(Generic[T]):
    """Has `commit` do for many threads at once what each wants: who comes while it works waits, and is served with all
    that wait by then.

    What is wanted is told apart by identity, and `commit` writes into it what became of it, errors too. What `commit`
    raises ends only the call that made it; the others' wishes are taken by the next.
    """

    def __init__(self, commit: Callable[[Sequence[T]], None]) -> None:
        self._commit = commit
        self._turn = threading.Lock()
        self._waiting: list[T] = []  # changed only by calls that are atomic between threads

    def take(self, wanted: T) -> None:
        """Return once `commit` has served `wanted`. From any thread."""
        self._waiting.append(wanted)
        with self._turn:
            if any(one is wanted for one in self._waiting):
                taken = [*self._waiting]
                self._commit(taken)
                del self._waiting[: len(taken)]
