"""Open replicas together: a job of many logs claims them in one commit, not one after the other.

Each log is started by a thread of its own, once its master has answered. A replica that comes while others are being
opened waits, and is opened with all that are waiting by then. If one of them cannot be opened, the others are opened
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
    """A request to open replicas, all or none."""

    replicas: Sequence[Replica]
    is_done: bool = False
    failure: Exception | None = None


class Opening:
    """Opens the logs of one run, which share its `writer`. From any thread."""

    def __init__(self) -> None:
        self.writer = this_writer()
        self._turn = threading.Lock()
        self._waiting: list[_Wish] = []  # changed only by calls that are atomic between threads

    def open(self, *replicas: Replica) -> None:
        """Open `replicas`, all of one table, as `open_together` does. If it raises, none of them is opened."""
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
