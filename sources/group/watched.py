"""One log of a group, as the planner of its stream knows it: where it stands, what its master was last seen to hold.

Decides nothing about the others, and asks nobody itself. Times are seconds of `time.monotonic`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from sources.errors import LogtwinError
from sources.group.lookout import Looking, Seen
from sources.group.standing import Place
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

BUSY_S: Final = 0.01
"""Between two looks at a log whose producers wait, while bytes come."""

QUIET_S: Final = 0.05
"""The same while none come: what its next record waits at most for a look."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Watched:
    """See above. `place` is None while the log is not to be read."""

    log: MasterLog
    may_begin_later: bool = True  # where its master's retention has taken what it was to begin with
    place: Place | None = None
    is_waited_for: bool = False
    is_late: bool = False
    asked_s: float | None = None  # since when a look is under way
    is_gathered: bool = False  # a batch waits for that look
    error: LogtwinError | None = None
    end: Offset | None = None  # nothing beyond is to be read
    _asked_at: Place | None = None
    _seen: Seen | None = None
    _start: Offset | None = None  # of a log without a position, once it is known; of the earliest one it may move
    _is_told: bool = False
    _pause_s: float = BUSY_S
    _due_s: float = 0.0

    def stand(self, place: Place | None) -> None:
        """It is to be read from `place`, or not at all. Listed anew, it is looked at anew."""
        if self.place is None or place is None or place.turn != self.place.turn:
            self._seen = self.error = None
            self._is_told = False
        self.place = place

    @property
    def is_to_be_seen(self) -> bool:
        """Whether nothing is known of it since it was listed, and nobody is asking."""
        return self._can_be_asked and self._seen is None

    def is_due(self, now_s: float, *, is_beat: bool) -> bool:
        """Whether it is to be looked at now: at the beat of all, or as its waiting producers need it."""
        is_time = is_beat or (self.is_waited_for and now_s >= self._due_s)
        return self._can_be_asked and (is_time or self._seen is None)

    @property
    def due_s(self) -> float | None:
        """When it is to be looked at besides the beat."""
        return self._due_s if self.is_waited_for and self._can_be_asked else None

    def looking(self, now_s: float, *, is_gathered: bool) -> Looking:
        """A look begins now, for this. Its outcome goes to `hear`."""
        place = self.place
        if place is None:
            raise ValueError(f"{self.log.log_id} is not to be read")
        self.asked_s, self._asked_at, self.is_gathered = now_s, place, is_gathered
        known = None if self._seen is None else self._seen.held.end
        return Looking(replace(place, position=self._start if place.position is None else place.position), known)

    def hear(self, outcome: object, at_s: float, deadline_s: float) -> None:
        """What the look came to, a `Seen` or a LogtwinError, and when."""
        took_s, self.asked_s, self.is_gathered = at_s - (self.asked_s or at_s), None, False
        self._hear_lateness(took_s, deadline_s)
        if isinstance(outcome, Seen) and self._is_same_turn:
            self._see(outcome, at_s)
        elif isinstance(outcome, LogtwinError) and self.place == self._asked_at:
            # Of another place it says nothing: retention may have passed the one where the log stood then.
            self.error = outcome.at(self.log.log_id)

    def _see(self, seen: Seen, at_s: float) -> None:
        has_news = self._seen is None or seen.held.end > self._seen.held.end
        self._pause_s = BUSY_S if has_news else min(2 * self._pause_s, QUIET_S)
        self._due_s = at_s + self._pause_s
        self._seen = seen
        if self._asked_at is not None and self._asked_at.position is None and not self.may_begin_later:
            self._start = seen.start

    def look_at_lateness(self, now_s: float, deadline_s: float) -> None:
        """No batch waits longer than `deadline_s` for a look, nor for another one until one was in time again."""
        if self.asked_s is None or now_s - self.asked_s <= deadline_s:
            return
        self.is_gathered = False
        if not self.is_late:
            self.is_late = True
            logger.warning("%s: its master does not answer within %g s; others go on", self.log.log_id, deadline_s)

    def _hear_lateness(self, took_s: float, deadline_s: float) -> None:
        if self.is_late and took_s <= deadline_s:
            self.is_late = False
            logger.warning("%s: its master answers in time again", self.log.log_id)

    @property
    def backlog(self) -> OffsetRange | None:
        """What is known to be there and not read yet, from the log's position on; None for nothing."""
        if self.place is None or self._seen is None or self.error is not None:
            return None
        held = self._seen.held
        end = held.end if self.end is None else min(held.end, self.end)
        start = self._seen.start if self.place.position is None else self.place.position
        return OffsetRange(start, end) if held.start <= start < end else None

    @property
    def held_end(self) -> Offset | None:
        """Where its master's log ended when it was last looked at."""
        return None if self._seen is None else self._seen.held.end

    @property
    def news(self) -> LogtwinError | None:
        """The error that is still to be told."""
        return None if self.place is None or self._is_told else self.error

    def told(self) -> None:
        """From here on it is left alone until it is listed anew."""
        self._is_told = True

    @property
    def _is_same_turn(self) -> bool:
        now, then = self.place, self._asked_at
        return now is not None and then is not None and now.turn == then.turn

    @property
    def _can_be_asked(self) -> bool:
        return self.place is not None and self.error is None and self.asked_s is None
