"""When the next batch of a group begins, and what of which log it reads.

A log that nobody waits for is looked at on the beat of all, once an interval, and a batch is planned with what these
looks have found. One whose producers wait is looked at far more often, and its bytes begin a batch at once; so does
what is known to be left of an earlier batch, and an error. A look that is not answered in time leaves its log where it
is and holds up nobody; its answer is used when it comes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from sources.errors import LogtwinError, MasterSilent, of_log
from sources.group import standing
from sources.group.asking import Asker
from sources.group.lookout import Lookout
from sources.group.shares import shares
from sources.group.standing import Standing
from sources.group.watched import Watched
from sources.master import MasterLog
from sources.offsets import OffsetRange

STANDING_S: Final = 0.05
"""How often the job's file is looked at while nothing else happens."""

ROLES_S: Final = 30.0
"""How often a master is asked whether producers wait: an operator may change it while it runs."""

Kind = Literal["look", "role"]


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be read of each log, and what kept others from being planned; never both empty. By log id."""

    batches: Mapping[str, OffsetRange]
    errors: Mapping[str, LogtwinError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long is waited, in seconds: for a batch at most; for a look that a batch waits for; for the looks before a
    run that ends by itself, which has to give a master time to be found unreachable."""

    interval_s: float
    look_deadline_s: float
    last_look_deadline_s: float


class GroupWatch:
    """For one thread. `lookouts` are of all masters whose logs the job may ever list in the standing at `path`; of
    other logs it is told, and leaves them alone."""

    def __init__(self, lookouts: Sequence[Lookout], path: Path, pace: Pace) -> None:
        self._lookouts = lookouts
        self._logs: dict[str, Watched] = {}
        self._of: dict[int, list[str]] = {at: [] for at in range(len(lookouts))}  # the logs of each lookout
        self._path = path
        self._pace = pace
        self._asker: Asker[tuple[Kind, int]] = Asker()
        self._said = standing.NOTHING
        self._beat_s = 0.0
        self._roles_s = 0.0
        self._ends = False  # it reads what was there once, and no more

    def prepare_to_end(self) -> None:
        """Nothing is read beyond what the logs hold now; one that cannot be looked at has an error.

        Blocks until all listed logs have answered, `last_look_deadline_s` at most.
        """
        self._ends = True
        self._stand()
        self._see_all()

    def next(self) -> Batch | None:
        """The next batch, as soon as one is worth beginning. None after about an interval without one; at once where
        the job is stopping, or where all that was there has been read after `prepare_to_end`.

        Raises OSError, ValueError for a standing that cannot be read.
        """
        return self._next_of_the_rest() if self._ends else self._next()

    def _next(self) -> Batch | None:
        ends_s = time.monotonic() + self._pace.interval_s
        is_first = True
        while True:
            said = self._stand()
            if said.is_stopping:
                return None
            self._hear(0)
            now_s = time.monotonic()
            self._ask(now_s, is_first=is_first)  # an interval has a beat, so that None says that there was nothing
            if self._is_worth_it():
                return self._plan()
            if now_s >= ends_s and not self._is_gathering():
                return None
            self._hear(self._until(now_s, ends_s))
            is_first = False

    def _next_of_the_rest(self) -> Batch | None:
        if self._stand().is_stopping:
            return None
        self._see_all()
        return self._plan()

    def _stand(self) -> Standing:
        """What the job says now."""
        said = standing.read(self._path)
        if said is not self._said:  # the same object as long as the file is the same
            self._said = said
            for log_id in said.positions.keys() - self._logs.keys():
                self._add(log_id)
            for log_id, watched in self._logs.items():
                watched.stand(said.positions.get(log_id))
        return said

    def _add(self, log_id: str) -> None:
        for at, lookout in enumerate(self._lookouts):
            if (log := lookout.log(log_id)) is not None:
                self._logs[log_id] = Watched(log, lookout.may_begin_later)
                self._of[at].append(log_id)

    def _ask(self, now_s: float, *, is_first: bool) -> None:
        """What is due. The first looks of a call are waited for, as are those of the beat: they cost it little."""
        is_beat = now_s >= self._beat_s
        if is_beat:
            self._beat_s = now_s + self._pace.interval_s
        for at in range(len(self._lookouts)):
            due = [one for one in self._watched(at) if one.is_due(now_s, is_beat=is_beat)]
            self._look(at, due, now_s, is_gathered=is_beat or is_first)
        if now_s >= self._roles_s:
            self._roles_s = now_s + ROLES_S
            for at, lookout in enumerate(self._lookouts):
                self._asker.ask(("role", at), lookout.is_waited_for)

    def _look(self, at: int, due: Sequence[Watched], now_s: float, *, is_gathered: bool) -> None:
        """A question for all that is due of one master. A batch waits for the answer, unless the last one was late."""
        if not due or self._asker.is_asking(("look", at)):
            return
        wanted = {
            str(one.log.log_id): one.looking(now_s, is_gathered=not one.is_late and (is_gathered or one.is_to_be_seen))
            for one in due
        }
        self._asker.ask(("look", at), partial(self._lookouts[at].look, wanted))

    def _hear(self, timeout_s: float) -> None:
        self._take(timeout_s, self._pace.look_deadline_s)
        now_s = time.monotonic()
        for watched in self._listed():
            watched.look_at_lateness(now_s, self._pace.look_deadline_s)

    def _take(self, timeout_s: float, deadline_s: float) -> None:
        for answer in self._asker.take(timeout_s):
            kind, at = answer.key
            for log_id in self._of[at]:
                watched = self._logs[log_id]
                if kind == "role" and isinstance(answer.value, bool):  # who cannot say is asked again
                    watched.is_waited_for = answer.value
                elif kind == "look" and watched.asked_s is not None:
                    found = answer.value.get(log_id) if isinstance(answer.value, Mapping) else answer.value
                    watched.hear(found, answer.at_s, deadline_s)

    def _is_worth_it(self) -> bool:
        listed = self._listed()
        if any(one.news for one in listed) or any(one.is_waited_for and one.backlog for one in listed):
            return True
        return any(one.backlog for one in listed) and not self._is_gathering()

    def _is_gathering(self) -> bool:
        return any(one.is_gathered for one in self._listed())

    def _until(self, now_s: float, ends_s: float) -> float:
        """How long nothing happens by itself."""
        then_s = [self._beat_s, now_s + STANDING_S]
        if ends_s > now_s:
            then_s.append(ends_s)
        for watched in self._listed():
            if watched.due_s is not None:
                then_s.append(watched.due_s)
            if watched.is_gathered and watched.asked_s is not None:
                then_s.append(watched.asked_s + self._pace.look_deadline_s)
        return min(then_s) - now_s

    def _see_all(self) -> None:
        """A look at each log that had none since it was listed; nothing is planned beyond what the first one found."""
        now_s = time.monotonic()
        ends_s = now_s + self._pace.last_look_deadline_s
        while now_s < ends_s:
            for at in range(len(self._lookouts)):
                unseen = [one for one in self._watched(at) if one.is_to_be_seen]
                self._look(at, unseen, now_s, is_gathered=True)
            if all(watched.asked_s is None for watched in self._listed()):
                break
            self._take(ends_s - now_s, self._pace.last_look_deadline_s)
            now_s = time.monotonic()
        for watched in self._listed():
            if watched.asked_s is not None and watched.error is None:
                watched.error = _silent(watched, self._pace.last_look_deadline_s)
            if watched.end is None:
                watched.end = watched.held_end

    def _plan(self) -> Batch | None:
        budget_bytes = self._said.budget_bytes
        backlogs = {log_id: one.backlog for log_id, one in self._logs.items()}
        found = {log_id: backlog for log_id, backlog in backlogs.items() if backlog is not None}
        sizes = {log_id: _size_bytes(self._logs[log_id], backlog, budget_bytes) for log_id, backlog in found.items()}
        batches: dict[str, OffsetRange] = {}
        for log_id, share in shares(sizes, budget_bytes).items():
            try:
                batches[log_id] = _part(self._logs[log_id].log, found[log_id], share)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
                self._logs[log_id].error = of_log(error, log_id)
        news = {log_id: one.news for log_id, one in self._logs.items()}
        errors = {log_id: error for log_id, error in news.items() if error is not None}
        for log_id in errors:
            self._logs[log_id].told()
        return Batch(batches, errors) if batches or errors else None

    def _watched(self, at: int) -> list[Watched]:
        return [self._logs[log_id] for log_id in self._of[at]]

    def _listed(self) -> list[Watched]:
        return [watched for watched in self._logs.values() if watched.place is not None]


def _size_bytes(watched: Watched, backlog: OffsetRange, budget_bytes: int) -> int:
    """What it has to read; one of which nobody knows may take a whole share."""
    size_bytes = watched.log.size_bytes(backlog)
    return budget_bytes if size_bytes is None else size_bytes


def _part(log: MasterLog, backlog: OffsetRange, share_bytes: int) -> OffsetRange:
    return OffsetRange(backlog.start, log.end_of_batch(backlog.start, backlog.end, share_bytes))


def _silent(watched: Watched, deadline_s: float) -> LogtwinError:
    return MasterSilent(
        "the master did not say what it holds",
        log=watched.log.log_id,
        expected=f"an answer within {deadline_s:g} s",
        hint=f"Check {watched.log.place}.",
    )
