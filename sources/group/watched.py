"""One log of a group as the planner of its stream knows it: its position, and its bounds at the last poll.

It decides nothing about other logs, and polls nobody itself. Times are seconds of `time.monotonic`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sources.errors import LogtwinError, of_log
from sources.group.poller import PollRequest, PollResult
from sources.group.standing import ListedLog
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

BUSY_S: Final = 0.01
"""Time between two polls of a log whose producers wait, while bytes come."""

QUIET_S: Final = 0.05
"""The same while none come: its next record waits for a poll no longer than this."""


@dataclass(slots=True)
class WatchedLog:
    """A log and what is known of it. `listed` is None while the log is not to be read."""

    log: MasterLog
    may_begin_later: bool = True  # if retention has deleted where it was to begin
    poller: int = 0  # the number of its master's poller
    listed: ListedLog | None = None
    is_waited_for: bool = False
    is_late: bool = False
    asked_s: float | None = None  # when the pending poll began
    is_gathered: bool = False  # a batch waits for that poll
    error: LogtwinError | None = None
    end: Offset | None = None  # read nothing beyond this
    _asked_at: ListedLog | None = None
    _seen: PollResult | None = None
    _start: Offset | None = None  # where a log without a position begins, if that may not move
    _is_told: bool = False
    _pause_s: float = BUSY_S
    _due_s: float = 0.0

    def set_listed(self, listed: ListedLog | None) -> None:
        """Set where to read it from; None for not at all. A log that is listed anew is polled anew."""
        if self.listed is None or listed is None or listed.turn != self.listed.turn:
            self._seen = self.error = None
            self._is_told = False
        self.listed = listed

    @property
    def is_to_be_seen(self) -> bool:
        """Whether nothing was seen of it since it was listed, and no poll is pending."""
        return self._can_be_asked and self._seen is None

    def is_due(self, now_s: float, *, is_beat: bool) -> bool:
        """Whether to poll it now: at the beat of all logs, or as often as its waiting producers need."""
        is_time = is_beat or (self.is_waited_for and now_s >= self._due_s)
        return self._can_be_asked and (is_time or self._seen is None)

    @property
    def due_s(self) -> float | None:
        """When to poll it, apart from the beat."""
        return self._due_s if self.is_waited_for and self._can_be_asked else None

    def request(self, now_s: float, *, is_gathered: bool) -> PollRequest:
        """Begin a poll; return what to ask. Give the outcome to `hear`."""
        listed = self.listed
        if listed is None:
            raise ValueError(f"{self.log.log_id} is not to be read")
        self.asked_s, self._asked_at, self.is_gathered = now_s, listed, is_gathered
        known = None if self._seen is None else self._seen.bounds.end
        if listed.position is None and self._start is not None:
            listed = replace(listed, position=self._start)
        return PollRequest(listed, known)

    def hear(self, outcome: object, at_s: float, deadline_s: float) -> None:
        """Take the outcome of the poll, a `PollResult` or an exception, and when it came."""
        is_in_time = at_s - (self.asked_s or at_s) <= deadline_s
        self.asked_s, self.is_gathered, self.is_late = None, False, self.is_late and not is_in_time
        if isinstance(outcome, PollResult) and self._is_same_turn:
            self._see(outcome, at_s)
        elif isinstance(outcome, Exception) and self.listed == self._asked_at:
            # At another position the error means nothing: retention may have passed the one that was asked for.
            self.error = of_log(outcome, self.log.log_id, "polling the master failed")

    def _see(self, seen: PollResult, at_s: float) -> None:
        has_news = self._seen is None or seen.bounds.end > self._seen.bounds.end
        self._pause_s = BUSY_S if has_news else min(2 * self._pause_s, QUIET_S)
        self._due_s = at_s + self._pause_s
        self._seen = seen
        if self._asked_at is not None and self._asked_at.position is None and not self.may_begin_later:
            self._start = seen.start

    def is_overdue(self, now_s: float, deadline_s: float) -> bool:
        """Whether the pending poll has taken longer than `deadline_s`, which is as long as a batch waits for it."""
        return self.asked_s is not None and now_s - self.asked_s > deadline_s

    @property
    def backlog(self) -> OffsetRange | None:
        """The known backlog, from the log's position on; None for nothing."""
        if self.listed is None or self._seen is None or self.error is not None:
            return None
        bounds = self._seen.bounds
        end = bounds.end if self.end is None else min(bounds.end, self.end)
        start = self._seen.start if self.listed.position is None else self.listed.position
        return OffsetRange(start, end) if bounds.start <= start < end else None

    @property
    def log_end(self) -> Offset | None:
        """The log end at the last poll."""
        return None if self._seen is None else self._seen.bounds.end

    @property
    def news(self) -> LogtwinError | None:
        """The error that was not reported yet."""
        return None if self.listed is None or self._is_told else self.error

    def told(self) -> None:
        """Note that the error was reported; the log is left alone until it is listed anew."""
        self._is_told = True

    @property
    def _is_same_turn(self) -> bool:
        now, then = self.listed, self._asked_at
        return now is not None and then is not None and now.turn == then.turn

    @property
    def _can_be_asked(self) -> bool:
        return self.listed is not None and self.error is None and self.asked_s is None
