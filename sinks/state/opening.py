"""Replicas are opened together: a job of many logs claims them in one commit, not one after the other.

Each log is begun by a thread of its own, once its master has answered. Whoever comes while others are being opened
waits, and is opened with all that wait by then. What keeps one of them from it is its own: the others are opened
without it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from sinks.batch.replica import Replica, open_together
from sinks.state.fence import this_writer
from sinks.tables import log_table


@dataclass(eq=False, slots=True)
class _Wish:
    """Replicas that are opened all or none."""

    replicas: Sequence[Replica]
    is_done: bool = False
    failure: Exception | None = None


class Opening:
    """For the logs of one run, whose `writer` they all have. From any thread."""

    def __init__(self) -> None:
        self.writer = this_writer()
        self._turn = threading.Lock()
        self._waiting: list[_Wish] = []  # only added to, and taken from, by calls that no thread can get into

    def open(self, *replicas: Replica) -> None:
        """`Replica.open` of each, all of one table. Raises as that does; none of them is opened then."""
        mine = _Wish(replicas)
        self._waiting.append(mine)
        with self._turn:
            if not mine.is_done:
                _open_all(taken := list(self._waiting))
                for wish in taken:
                    self._waiting.remove(wish)
        if mine.failure is not None:
            raise mine.failure


def _open_all(wishes: Sequence[_Wish]) -> None:
    for _, alike in groupby(sorted(wishes, key=_kind), _kind):
        found = list(alike)
        _open(found)
        if len(found) > 1 and found[0].failure is not None:
            for wish in found:
                _open([wish])


def _kind(wish: _Wish) -> tuple[str, bool]:
    first = wish.replicas[0]
    return log_table(first.log_id).name, first.is_open


def _open(wishes: Sequence[_Wish]) -> None:
    failure: Exception | None = None
    try:
        open_together([one for wish in wishes for one in wish.replicas])
    except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
        failure = error
    for wish in wishes:
        wish.is_done, wish.failure = True, failure
