"""Knows what a master holds of the logs that a job replicates.

The planner looks at all masters, to plan, and tells the job (`sources/group/standing.py`). The job itself asks a master
when it starts to replicate a log, and every half minute for what changes seldom: role, retention, election.

A master tells where its log ends, but not since when. So a job remembers its sightings: at one moment, by the driver's
own monotonic clock, the log ended at a maximum. The first byte that is not committed is as old as the first sighting
beyond it. No two clocks are compared, and setting the wall clock changes nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from sources.access.spread import Spread
from sources.bounds import UntilLoss
from sources.errors import LogtwinError
from sources.master import MasterView
from sources.offsets import Offset, OffsetRange

SIGHT_EVERY_S = 5.0
"""How often a log end that has not moved is recorded as a new sighting."""
VIEW_EVERY_S = 30.0

WINDOW_S = 600.0
"""The time over which growth is averaged."""
LIMIT = 256
"""How many sightings are kept."""


class MasterWatch:
    """The logs of one master, watched as one by a job: `bounds` and positions are sums over all of them.

    The sum of all ends less the sum of all positions is what is not replicated yet. Any thread may call anything; times
    `now_s` come from `time.monotonic`. `look` asks the master for a view of itself; None if there is nothing to ask.
    `views` says when the first is due, so that many masters are not asked in the same moment.
    """

    def __init__(self, look: Callable[[], MasterView] | None = None, views: Spread | None = None) -> None:
        self._look = look
        self._views = views
        self._held: Mapping[str, OffsetRange] = {}
        self._bounds: OffsetRange | None = None
        self._view: MasterView | None = None
        self._history = MasterHistory()
        self._sighted_s = 0.0
        self._view_due_s = 0.0

    @property
    def held(self) -> Mapping[str, OffsetRange]:
        """The bounds of each log at the master, by log id; empty before the first answer."""
        return self._held

    @property
    def bounds(self) -> OffsetRange | None:
        """The sum of the bounds of all logs; None before the first answer."""
        return self._bounds

    @property
    def role(self) -> str | None:
        """The role that the master gives itself; None before it was asked, and for files."""
        return None if self._view is None else self._view.role

    @property
    def epoch(self) -> int | None:
        """The number of its election; None before it was asked, and for a master that is not elected."""
        return None if self._view is None or self._view.epoch is None else self._view.epoch.number

    @property
    def confirmed(self) -> Offset | None:
        """The offset below which no fail-over takes anything back, as of the last look; None as for `epoch`."""
        return None if self._view is None else self._view.confirmed

    def begin(self, held: Mapping[str, OffsetRange], position: Offset | None, now_s: float) -> None:
        """Note the bounds `held` of all the master's logs; `position` is what is committed of them."""
        self._held = {}
        self._sighted_s = 0.0
        if self._views is not None and not self._view_due_s:
            self._view_due_s = self._views.moment_s(now_s)
        self.hear(held, position, now_s)

    def hear(self, held: Mapping[str, OffsetRange], position: Offset | None, now_s: float) -> None:
        """Note the bounds `held` that some of the master's logs have now. Cheap if they are known."""
        found = {**self._held, **held}
        if not held or (found == self._held and now_s < self._sighted_s + SIGHT_EVERY_S):
            return
        bounds = _sum(found)
        self._held, self._bounds = found, bounds
        self._history = self._history.seen(now_s, bounds.end, reached(position, bounds))
        self._sighted_s = now_s

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to ask for a view."""
        return self._look is not None and now_s >= self._view_due_s

    def poll(self, now_s: float) -> None:
        """Ask for a view if that is due. If the master cannot answer, the planner reports it."""
        if self._look is None or not self.is_due(now_s):
            return
        self._view_due_s = now_s + VIEW_EVERY_S
        with suppress(LogtwinError):
            self._view = self._look()

    def lag_s(self, position: Offset | None, now_s: float) -> float | None:
        """How long ago the first byte that is not committed was first seen; None before the first answer."""
        if self._bounds is None:
            return None
        return self._history.lag_s(reached(position, self._bounds), now_s)

    def until_loss(self, position: Offset | None, newest_stored_us: int | None) -> UntilLoss | None:
        """How much is left until the master deletes uncommitted data; None if nothing is at risk or nothing is known.

        `newest_stored_us`: when the master stored the newest committed record, µs since 1970.
        """
        view, bounds = self._view, self._bounds
        if view is None or bounds is None:
            return None
        growth = self._history.growth_bytes_per_s()
        return until_loss(view, bounds, position, newest_stored_us, growth_bytes_per_s=growth)


def until_loss(
    view: MasterView,
    bounds: OffsetRange,
    position: Offset | None,
    newest_stored_us: int | None,
    *,
    growth_bytes_per_s: float | None,
) -> UntilLoss | None:
    """Return `Retention.until_loss` of a master with `bounds`, now.

    The age of what is not committed yet compares the master's clock, by which it was stored, with ours.
    """
    if view.retention is None:
        return None
    age_s = None if newest_stored_us is None else max(0.0, time.time() - newest_stored_us / 1e6)
    wanted = min(reached(position, bounds), bounds.end)
    return view.retention.until_loss(bounds, wanted, age_s=age_s, growth_bytes_per_s=growth_bytes_per_s)


def _sum(held: Mapping[str, OffsetRange]) -> OffsetRange:
    start = sum(one.start for one in held.values())
    return OffsetRange(Offset(start), Offset(sum(one.end for one in held.values())))


def reached(position: Offset | None, bounds: OffsetRange) -> Offset:
    """The first offset that is not committed; for an empty replica, the master's minimum."""
    return bounds.start if position is None else position


class EndSeen(NamedTuple):
    """A sighting: at `at_s` the master's log ended at `maximum`."""

    at_s: float
    maximum: Offset


@dataclass(frozen=True, slots=True)
class MasterHistory:
    """Sightings of a master in order; neither their times nor their maxima fall.

    It keeps the sightings of the last WINDOW_S and those that the lag needs, at most LIMIT. Beyond that it forgets
    every second one, which costs resolution in proportion to the time that the history spans: about one part in
    LIMIT / 2.
    """

    sightings: tuple[EndSeen, ...] = ()

    def seen(self, at_s: float, maximum: Offset, reached: Offset) -> MasterHistory:
        """Return the history with one more sighting, without those that a replica at `reached` no longer needs."""
        if self.sightings and maximum < self.sightings[-1].maximum:
            return MasterHistory((EndSeen(at_s, maximum),))  # it lost its tail, or is another one: a new history
        needed_from_s = min(at_s - WINDOW_S, self._first_beyond(reached, at_s))
        kept = self.sightings[bisect_left(self.sightings, needed_from_s, key=lambda one: one.at_s) :]
        if len(kept) >= LIMIT:
            kept = kept[::2]
        return MasterHistory((*kept, EndSeen(at_s, maximum)))

    def lag_s(self, reached: Offset, now_s: float) -> float | None:
        """Seconds since the byte at `reached` was first seen at the master; 0 if it is not there yet.

        None without a sighting.
        """
        if not self.sightings:
            return None
        return now_s - self._first_beyond(reached, now_s)

    def growth_bytes_per_s(self) -> float | None:
        """How fast the log grew over the last WINDOW_S, or since the first sighting if that is later.

        None with fewer than two sightings.
        """
        if not self.sightings:
            return None
        last = self.sightings[-1]
        first = self.sightings[bisect_left(self.sightings, last.at_s - WINDOW_S, key=lambda one: one.at_s)]
        passed_s = last.at_s - first.at_s
        return (last.maximum - first.maximum) / passed_s if passed_s > 0 else None

    def _first_beyond(self, reached: Offset, otherwise_s: float) -> float:
        at = bisect_right(self.sightings, reached, key=lambda one: one.maximum)
        return self.sightings[at].at_s if at < len(self.sightings) else otherwise_s
