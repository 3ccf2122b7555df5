"""How far behind in time a replica is, and how fast its master grows: from when the master was seen where. Pure.

A master tells how far its log goes, not since when. So a job remembers what it saw: at a moment, by the driver's own
monotonic clock, the log ended at a maximum. The first byte that is not committed is as old as the first sighting
beyond it. No two clocks are compared, and a clock that is set changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sources.offsets import Offset, OffsetRange

WINDOW_S = 600.0
LIMIT = 256


def reached(position: Offset | None, bounds: OffsetRange) -> Offset:
    """The first offset that is not committed; a replica that holds nothing yet wants all that the master holds."""
    return bounds.start if position is None else position


class Sighting(NamedTuple):
    """At `at_s` the master's log ended at `maximum`."""

    at_s: float
    maximum: Offset


@dataclass(frozen=True, slots=True)
class MasterHistory:
    """Sightings in order; neither their times nor their maxima fall.

    Kept are those of the last WINDOW_S and those that the lag needs, at most LIMIT. Beyond that every second one is
    forgotten, which costs resolution in proportion to the time that the history spans: about one part in LIMIT / 2.
    """

    sightings: tuple[Sighting, ...] = ()

    def seen(self, at_s: float, maximum: Offset, reached: Offset) -> MasterHistory:
        """With one more sighting, and without those that a replica which has reached `reached` needs no more."""
        if self.sightings and maximum < self.sightings[-1].maximum:
            return MasterHistory((Sighting(at_s, maximum),))  # it lost its tail, or is another one: a new history
        needed_from_s = min(at_s - WINDOW_S, self._first_beyond(reached, at_s))
        kept = tuple(one for one in self.sightings if one.at_s >= needed_from_s)
        if len(kept) >= LIMIT:
            kept = kept[::2]
        return MasterHistory((*kept, Sighting(at_s, maximum)))

    def lag_s(self, reached: Offset, now_s: float) -> float | None:
        """How long ago the byte at `reached` was first seen at the master; 0 before it is there, None never asked."""
        if not self.sightings:
            return None
        return now_s - self._first_beyond(reached, now_s)

    def growth_bytes_per_s(self) -> float | None:
        """How fast the log grew over the last WINDOW_S, or over as much of them as was seen; None of one sighting."""
        if not self.sightings:
            return None
        last = self.sightings[-1]
        first = next(one for one in self.sightings if one.at_s >= last.at_s - WINDOW_S)
        passed_s = last.at_s - first.at_s
        return (last.maximum - first.maximum) / passed_s if passed_s > 0 else None

    def _first_beyond(self, reached: Offset, otherwise_s: float) -> float:
        return next((one.at_s for one in self.sightings if one.maximum > reached), otherwise_s)
