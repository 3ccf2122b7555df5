"""When the next batch of a group begins, and what it reads of each log.

A log that nobody waits for is polled once per interval, at a beat that all logs share, and a batch is planned from the
answers. A log whose producers wait is polled far more often, and its bytes begin a batch at once; so do bytes left over
from an earlier batch, and an error. A log whose poll is not answered in time is left out of the batch and delays
nothing else; the answer is used when it comes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from sources.errors import LogtwinError, MasterSilent, of_log
from sources.group import standing
from sources.group.asking import Asker
from sources.group.offsets import shares
from sources.group.poller import Poller
from sources.group.standing import Standing
from sources.group.watched import WatchedLog
from sources.master import MasterLog
from sources.offsets import OffsetRange

STANDING_S: Final = 0.05
"""How often to read the job's file while nothing else happens."""

ROLES_S: Final = 30.0
"""How often to ask a master whether producers wait: an operator may change that at run time."""

ROLES_AT_ONCE: Final = 64
"""How many masters are asked for their roles for the first time at once: their first polls come before."""

TELL_LATE_S: Final = 10.0
"""How often to say which masters are late, at most: a busy machine makes many late now and then."""

NAMED: Final = 5
"""How many masters such a line names."""

Kind = Literal["poll", "role"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The range to read of each log, and the errors of those that could not be planned, by log id; not both empty."""

    batches: Mapping[str, OffsetRange]
    errors: Mapping[str, LogtwinError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long to wait, in seconds: for a batch at most; for a poll that a batch waits for; and for the polls before a
    run that ends by itself, which must give an unreachable master time to be noticed.
    """

    interval_s: float
    poll_deadline_s: float
    last_poll_deadline_s: float


class GroupPlanner:
    """Plans batches, for one thread. `pollers` are those of the masters whose logs the job lists in the standing at
    `path`; `added` returns those of masters that came since. Logs of no master are ignored there.
    """

    def __init__(
        self,
        pollers: Sequence[Poller],
        path: Path,
        pace: Pace,
        added: Callable[[], Iterable[Poller]] = tuple,
    ) -> None:
        self._pollers: list[Poller] = []
        self._logs: dict[str, WatchedLog] = {}
        self._at: dict[str, int] = {}  # the number of each master's poller
        self._of: dict[int, list[str]] = {}  # the logs of each poller
        self._added = added
        self._file = standing.file_at(path)
        self._pace = pace
        self._asker: Asker[tuple[Kind, int]] = Asker()
        self._standing = standing.NOTHING
        self._listed: list[WatchedLog] = []  # the logs that it says are to be read
        self._beat_s = 0.0
        self._roles_s = 0.0  # until then they were asked for their roles in turn
        self._roles_known = 0  # how many of the first masters have been asked
        self._roles_next = 0
        self._late: list[str] = []
        self._tell_late_s = 0.0
        self._ends = False  # whether to read only what is there now
        self._follow(pollers)

    def _follow(self, pollers: Iterable[Poller]) -> None:
        for at, poller in enumerate(pollers, len(self._pollers)):
            self._pollers.append(poller)
            self._at[poller.master_id], self._of[at] = at, []

    def prepare_to_end(self) -> None:
        """Read nothing beyond what the logs hold now; a log that cannot be polled gets an error.

        Blocks until all listed logs have answered, for `last_poll_deadline_s` at most.
        """
        self._ends = True
        self._read_standing()
        self._poll_all()

    def next(self, within_s: float | None = None) -> PlannedBatch | None:
        """Return the next batch as soon as one is worth beginning; None after about `within_s` without one, by default
        an interval.

        Returns None at once if the job is stopping, or if everything was read after `prepare_to_end`.
        Raises OSError, ValueError for a standing that cannot be read.
        """
        return self._plan_rest() if self._ends else self._next(within_s or self._pace.interval_s)

    def _next(self, within_s: float) -> PlannedBatch | None:
        ends_s = time.monotonic() + within_s
        is_first = True
        while True:
            if self._read_standing().is_stopping:
                return None
            self._take_answers()
            now_s = time.monotonic()
            self._ask(now_s, is_first=is_first)  # each interval has a beat, so None means that there was nothing
            if self._is_batch_due():
                return self._plan()
            if now_s >= ends_s and not self._is_gathering():
                return None
            self._wait(self._next_due_s(now_s, ends_s))
            is_first = False

    def _plan_rest(self) -> PlannedBatch | None:
        if self._read_standing().is_stopping:
            return None
        self._poll_all()
        return self._plan()

    def _read_standing(self) -> Standing:
        standing_now = self._file.read()
        if standing_now is not self._standing:
            self._standing = standing_now
            if unknown := standing_now.positions.keys() - self._logs.keys():
                if any(self._poller_of(log_id) is None for log_id in unknown):
                    self._follow(self._added())
                for log_id in unknown:
                    self._add(log_id)
            for log_id, watched in self._logs.items():
                watched.set_listed(standing_now.positions.get(log_id))
            self._listed = [watched for watched in self._logs.values() if watched.listed is not None]
        return standing_now

    def _poller_of(self, log_id: str) -> int | None:
        """Return the number of its master's poller; None for a log of no master."""
        return self._at.get(log_id, self._at.get(log_id.rpartition("/")[0]))

    def _add(self, log_id: str) -> None:
        at = self._poller_of(log_id)
        if at is not None and (log := self._pollers[at].log(log_id)) is not None:
            self._logs[log_id] = WatchedLog(log, self._pollers[at].may_begin_later, poller=at)
            self._of[at].append(log_id)

    def _ask(self, now_s: float, *, is_first: bool) -> None:
        """Poll what is due. A call waits for its first polls and for those of the beat, which costs little."""
        is_beat = now_s >= self._beat_s
        if is_beat:
            self._beat_s = now_s + self._pace.interval_s
        due = [one for one in self._listed if one.is_due(now_s, is_beat=is_beat)]
        self._poll(due, now_s, is_gathered=is_beat or is_first)
        for at in self._roles_due(now_s):
            self._asker.ask(("role", at), self._pollers[at].is_waited_for)

    def _roles_due(self, now_s: float) -> list[int]:
        """Return the masters that were not asked for their role yet, and those to ask again.

        These are spread over ROLES_S, so that no poll waits for many of them.
        """
        known, count = self._roles_known, len(self._pollers)
        again = min(int((now_s - self._roles_s) * known / ROLES_S), known)
        count = min(count, known + ROLES_AT_ONCE)
        self._roles_s = now_s if again == known else self._roles_s + again * ROLES_S / known
        due = [(self._roles_next + number) % known for number in range(again)]
        self._roles_next, self._roles_known = self._roles_next + again, count
        return [*range(known, count), *due]

    def _poll(self, due: Sequence[WatchedLog], now_s: float, *, is_gathered: bool) -> None:
        """Poll each master once for all of its logs that are due. A batch waits for the answer, unless one was late."""
        of_each: dict[int, list[WatchedLog]] = {}
        for one in due:
            of_each.setdefault(one.poller, []).append(one)
        for at, logs in of_each.items():
            if self._asker.is_asking(("poll", at)):
                continue
            wanted = {
                str(one.log.log_id): one.request(
                    now_s, is_gathered=not one.is_late and (is_gathered or one.is_to_be_seen)
                )
                for one in logs
            }
            poller = self._pollers[at]
            self._asker.ask(("poll", at), partial(poller.poll, wanted), poller.poll_in_steps(wanted))

    def _take_answers(self) -> None:
        self._take(0, self._pace.poll_deadline_s)
        now_s = time.monotonic()
        for watched in self._listed:
            if watched.is_overdue(now_s, self._pace.poll_deadline_s):
                watched.is_gathered = False
                asked_s = self._asker.asked_s(("poll", watched.poller))
                watched.is_late |= asked_s is not None and now_s - asked_s > self._pace.poll_deadline_s
        if now_s >= self._tell_late_s:
            self._tell_late(now_s)

    def _tell_late(self, now_s: float) -> None:
        """Say in one line which masters are late, if that has changed."""
        late = sorted({self._pollers[one.poller].master_id for one in self._listed if one.is_late})
        if late == self._late:
            return
        self._late, self._tell_late_s = late, now_s + TELL_LATE_S
        if late:
            named = ", ".join(late[:NAMED]) + (f" and {len(late) - NAMED} more" if len(late) > NAMED else "")
            within_s = self._pace.poll_deadline_s
            logger.warning("%s: does not answer within %g s; other masters are not held up", named, within_s)
        else:
            logger.warning("all masters that are read answer in time again")

    def _wait(self, until_s: float) -> None:
        """Wait until something has to be done, a poll is answered, or the job says something new."""
        while (left_s := until_s - time.monotonic()) > 0:
            if self._asker.wait(min(left_s, STANDING_S)) or self._file.read() is not self._standing:
                return

    def _take(self, timeout_s: float, deadline_s: float) -> None:
        for answer in self._asker.take(timeout_s):
            kind, at = answer.key
            for log_id in self._of[at]:
                watched = self._logs[log_id]
                if kind == "role" and isinstance(answer.value, bool):  # if it cannot say, ask again
                    watched.is_waited_for = answer.value
                elif kind == "poll" and watched.asked_s is not None:
                    found = answer.value.get(log_id) if isinstance(answer.value, Mapping) else answer.value
                    watched.hear(found, answer.at_s, deadline_s)

    def _is_batch_due(self) -> bool:
        is_gathering = self._is_gathering()
        return any(
            one.news is not None or ((one.is_waited_for or not is_gathering) and one.backlog is not None)
            for one in self._listed
        )

    def _is_gathering(self) -> bool:
        return any(one.is_gathered for one in self._listed)

    def _next_due_s(self, now_s: float, ends_s: float) -> float:
        """Return when something has to be done next."""
        then_s = min(self._beat_s, ends_s) if ends_s > now_s else self._beat_s
        for watched in self._listed:
            if watched.is_gathered and watched.asked_s is not None:
                then_s = min(then_s, watched.asked_s + self._pace.poll_deadline_s)
            elif watched.due_s is not None:
                then_s = min(then_s, watched.due_s)
        return then_s

    def _poll_all(self) -> None:
        """Poll each log not seen since it was listed; plan nothing beyond its end at the first poll."""
        now_s = time.monotonic()
        ends_s = now_s + self._pace.last_poll_deadline_s
        while now_s < ends_s:
            self._poll([one for one in self._listed if one.is_to_be_seen], now_s, is_gathered=True)
            if all(watched.asked_s is None for watched in self._listed):
                break
            self._take(ends_s - now_s, self._pace.last_poll_deadline_s)
            now_s = time.monotonic()
        for watched in self._listed:
            if watched.asked_s is not None and watched.error is None:
                watched.error = _silent(watched, self._pace.last_poll_deadline_s)
            if watched.end is None:
                watched.end = watched.log_end

    def _plan(self) -> PlannedBatch | None:
        budget_bytes = self._standing.budget_bytes
        backlogs = {log_id: one.backlog for log_id, one in self._logs.items()}
        found = {log_id: backlog for log_id, backlog in backlogs.items() if backlog is not None}
        sizes = {log_id: _size_bytes(self._logs[log_id], backlog, budget_bytes) for log_id, backlog in found.items()}
        batches: dict[str, OffsetRange] = {}
        for log_id, share in shares(sizes, budget_bytes).items():
            try:
                batches[log_id] = _part(self._logs[log_id].log, found[log_id], share)
            except Exception as error:  # noqa: BLE001 - an error of one log must not end the others
                self._logs[log_id].error = of_log(error, log_id)
        news = {log_id: one.news for log_id, one in self._logs.items()}
        errors = {log_id: error for log_id, error in news.items() if error is not None}
        for log_id in errors:
            self._logs[log_id].told()
        return PlannedBatch(batches, errors) if batches or errors else None


def _size_bytes(watched: WatchedLog, backlog: OffsetRange, budget_bytes: int) -> int:
    """Return how many bytes it has to read; if nobody knows, it may take a whole share."""
    size_bytes = watched.log.size_bytes(backlog)
    return budget_bytes if size_bytes is None else size_bytes


def _part(log: MasterLog, backlog: OffsetRange, share_bytes: int) -> OffsetRange:
    return OffsetRange(backlog.start, log.end_of_batch(backlog.start, backlog.end, share_bytes))


def _silent(watched: WatchedLog, deadline_s: float) -> LogtwinError:
    return MasterSilent(
        "the master did not say what it holds",
        log=watched.log.log_id,
        expected=f"an answer within {deadline_s:g} s",
        hint=f"Check {watched.log.address}.",
    )
