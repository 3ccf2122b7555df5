"""Watches a master that a job replicates: asks for its bounds every second, for the rest every half minute.

A job of very many logs asks less often: with 1,000 quiet logs, most of its work would be these requests.

Spark knows only the state of the master when it planned the last batch, and a query that has stopped does not ask.
"""

from __future__ import annotations

import time
from typing import Protocol

from pipeline.monitoring.lag import MasterHistory, reached
from sources.errors import LogtwinError
from sources.master import MasterView
from sources.offsets import Offset, OffsetRange
from sources.retention import UntilLoss

BOUNDS_EVERY_S = 1.0
ASKED_A_SECOND = 64
"""How many masters of a job are asked for their bounds each second, at most."""
VIEW_EVERY_S = 30.0
AFTER_ERROR_S = 30.0


class AnsweringMaster(Protocol):
    """The part of a `MasterLog` that is asked."""

    def bounds(self, known: Offset | None = None) -> OffsetRange: ...

    def look(self) -> MasterView: ...


class MasterWatch:
    """What a job knows about one master. One thread asks; any thread may read.

    Times `now_s` come from `time.monotonic`. `among` is how many masters the job asks.
    """

    def __init__(self, log: AnsweringMaster, *, among: int = 1) -> None:
        self._log = log
        self._every_s = max(BOUNDS_EVERY_S, among / ASKED_A_SECOND)
        self._bounds: OffsetRange | None = None
        self._view: MasterView | None = None
        self._history = MasterHistory()
        self._bounds_due_s = 0.0
        self._view_due_s = 0.0

    @property
    def bounds(self) -> OffsetRange | None:
        """What the master holds; None before the first answer."""
        return self._bounds

    @property
    def role(self) -> str | None:
        """What the master calls itself; None before it was asked, and for files."""
        return None if self._view is None else self._view.role

    @property
    def epoch(self) -> int | None:
        """The number of its election; None before it was asked, and for a master that is not elected."""
        return None if self._view is None or self._view.epoch is None else self._view.epoch.number

    @property
    def confirmed(self) -> Offset | None:
        """The offset below which no fail-over takes anything back, as of the last look; None as for `epoch`."""
        return None if self._view is None else self._view.confirmed

    def ask(self, position: Offset | None, now_s: float) -> None:
        """Ask for the bounds now. Raises what `MasterLog.bounds` raises."""
        known = None if self._bounds is None else self._bounds.end
        self._bounds = self._log.bounds(known)
        self._history = self._history.seen(now_s, self._bounds.end, reached(position, self._bounds))
        self._bounds_due_s = now_s + self._every_s

    def poll(self, position: Offset | None, now_s: float) -> None:
        """Ask for what is due. After an error, pause for a while: the query meets the same error, and reports it."""
        if now_s < self._bounds_due_s:
            return
        try:
            self.ask(position, now_s)
            if now_s >= self._view_due_s:
                self._view = self._log.look()
                self._view_due_s = now_s + VIEW_EVERY_S
        except LogtwinError:
            self._bounds_due_s = now_s + AFTER_ERROR_S

    def lag_s(self, position: Offset | None, now_s: float) -> float | None:
        """How long ago the first byte that is not committed was first seen; None before the first answer."""
        if self._bounds is None:
            return None
        return self._history.lag_s(reached(position, self._bounds), now_s)

    def until_loss(self, position: Offset | None, newest_stored_us: int | None) -> UntilLoss | None:
        """What is left until the master deletes uncommitted data; None if nothing is at risk or nothing is known.

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
    """`Retention.until_loss` of a master that holds `bounds`, now.

    The age of what is not committed yet compares the master's clock, by which it was stored, with ours.
    """
    if view.retention is None:
        return None
    age_s = None if newest_stored_us is None else max(0.0, time.time() - newest_stored_us / 1e6)
    wanted = min(reached(position, bounds), bounds.end)
    return view.retention.until_loss(bounds, wanted, age_s=age_s, growth_bytes_per_s=growth_bytes_per_s)
