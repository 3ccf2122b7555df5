"""The partitions of a topic that an error keeps from being read, while the others are. Pure.

What happens to one is decided while nothing of its topic is read: it goes on at once, is tried again after a while,
each time a longer one, or stays out until the job ends.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from sinks.delta.commits import FIRST_WAIT_S, doubled_s
from sources.errors import LogtwinError, NoSuchTopic, Recreated, RepairPending, TakenOver, WorkerLost

OF_ALL = (NoSuchTopic, Recreated, RepairPending, TakenOver, WorkerLost)
"""Errors that name one partition but concern its whole topic: another topic, another run, a worker."""


log = logging.getLogger(__name__)


class SetAside:
    """Partitions of one topic that are left out. Any thread may call `note` and `moved`; the job's calls the others.

    `meet` handles an error, and returns the one that is left; None if nothing is.
    """

    def __init__(self, meet: Callable[[LogtwinError], LogtwinError | None], longest_wait_s: float) -> None:
        self._meet = meet
        self._longest_wait_s = longest_wait_s
        self._noted: Mapping[str, LogtwinError] = {}  # nothing was decided about them yet
        self._out: Mapping[str, tuple[float, LogtwinError]] = {}  # until when, and why
        self._tries: Counter[str] = Counter()

    def note(self, log_id: str, error: LogtwinError) -> bool:
        """Note an `error` that keeps this partition alone from being read. Returns whether it is such an error."""
        is_its_own = not isinstance(error, OF_ALL)
        if is_its_own:
            self._noted = {**self._noted, log_id: error}
        return is_its_own

    @property
    def undecided(self) -> Collection[LogtwinError]:
        """The errors noted since the last decision."""
        return self._noted.values()

    @property
    def is_decided(self) -> bool:
        """Whether nothing was noted since the last decision."""
        return not self._noted

    def __contains__(self, log_id: object) -> bool:
        return log_id in self._noted or log_id in self._out

    def __bool__(self) -> bool:
        return bool(self._noted or self._out)

    @property
    def error(self) -> LogtwinError | None:
        """The error of the partition that stays out longest."""
        return max(self._out.values(), key=lambda one: one[0], default=(0.0, None))[1]

    def is_due(self, now_s: float) -> bool:
        return bool(self._noted) or any(at_s <= now_s for at_s, _ in self._out.values())

    def of_all(self, log_ids: Collection[str]) -> LogtwinError | None:
        """Return a noted error, preferably a transient one, if every one of `log_ids` is noted or out for good.

        Otherwise None.
        """
        errors = sorted(self._noted.values(), key=lambda error: not error.is_transient)
        kept = self._noted.keys() | self._staying_out()
        return errors[0] if errors and kept.issuperset(log_ids) else None

    def _staying_out(self) -> dict[str, tuple[float, LogtwinError]]:
        return {log_id: one for log_id, one in self._out.items() if one[0] == math.inf}

    def decide(self, now_s: float, *, can_try_again: bool) -> None:
        """Decide about the errors noted, until `settle`, and let partitions be read again whose time has come."""
        left: dict[float, list[LogtwinError]] = {}
        out = {log_id: one for log_id, one in self._out.items() if one[0] > now_s}
        for log_id, noted in self._noted.items():
            if (error := self._meet(noted)) is None:
                continue
            wait_s = math.inf
            if error.is_transient and can_try_again:
                wait_s = doubled_s(FIRST_WAIT_S, self._tries[log_id], self._longest_wait_s)
            self._tries[log_id] += 1
            out[log_id] = now_s + wait_s, error
            left.setdefault(wait_s, []).append(error)
        self._out = out
        for wait_s, errors in left.items():
            count = f" (and of {len(errors) - 1} more partitions)" if errors[1:] else ""
            if wait_s == math.inf:
                log.error("%s%s; the topic's other partitions go on without it", errors[0], count)
            else:
                log.warning("%s%s; trying again in %.0f s, the other partitions go on", errors[0], count, wait_s)

    def settle(self) -> None:
        self._noted = {}

    def moved(self, log_id: str) -> bool:
        """Note that a batch had the partition. Returns whether an error had kept it from being read."""
        return self._tries.pop(log_id, None) is not None

    def begin_without(self, errors: Mapping[str, LogtwinError], log_ids: Collection[str]) -> None:
        """Note the `errors` of partitions with which the topic starts. Raises the one that keeps it from starting."""
        for log_id, error in errors.items():
            if not self.note(log_id, error):
                raise error
        if (kept := self.of_all(log_ids)) is not None:
            raise kept

    def begin_again(self) -> None:
        """Note that the topic is started again, with all partitions but those that stay out."""
        self._out = self._staying_out()
        self._tries.clear()
        self._noted = {}
