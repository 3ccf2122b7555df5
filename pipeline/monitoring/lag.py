"""Computes how far a replica is behind in time, and how fast its master grows. Pure.

A master tells where its log ends, but not since when. So a job remembers its sightings: at one moment, by the driver's
own monotonic clock, the log ended at a maximum. The first byte that is not committed is as old as the first sighting
beyond it. No two clocks are compared, and setting the wall clock changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from sources.offsets import Offset, OffsetRange

WINDOW_S = 600.0
LIMIT = 256


def reached(position: Offset | None, bounds: OffsetRange) -> Offset:
    """The first offset that is not committed; for a replica that holds nothing yet, the first that the master holds."""
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
        """A history with one more sighting, without those that a replica at `reached` no longer needs."""
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
