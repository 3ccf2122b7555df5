"""Handles a loss that ends one of a job's logs, as `loss_policy.py` decides, and counts incidents."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from pipeline.job.loss_policy import Mend, Skip, StopAndReport, decide
from pipeline.job.master_watch import MasterWatch
from sinks.batch.replica import Replica
from sinks.books.incident import Action, Incident
from sinks.books.quarantine import cause_of
from sources.errors import LogtwinError
from sources.loss import Condition, OnLoss, condition_of
from sources.offsets import Offset, OffsetRange

log = logging.getLogger(__name__)


class Lost(Protocol):
    """The log that a loss ended: a log of its own, or a partition of a topic."""

    @property
    def position(self) -> Offset | None: ...

    def bounds(self) -> OffsetRange | None:
        """What its master holds. It is asked again if it answers, because its retention goes on meanwhile."""

    def skip(self, incident: Incident) -> None:
        """Pass over the range of `incident`. Raises TakenOver, ReplicaError."""

    def report(self, incident: Incident) -> None:
        """Record `incident` without passing its range. Raises ReplicaError."""


class LostLog:
    """A log of its own that a loss ended."""

    def __init__(self, replica: Replica, watch: MasterWatch, ask: Callable[[], None], position: Offset | None) -> None:
        """`ask` brings `watch` up to date, or raises LogtwinError."""
        self.position = position
        self._watch = watch
        self._ask = ask
        self.skip = replica.skip
        self.report = replica.report

    def bounds(self) -> OffsetRange | None:
        with suppress(LogtwinError):
            self._ask()
        return self._watch.bounds


class LossRecord:
    """The losses of one log or topic in one run.

    `counts`: condition -> how many incidents this run recorded, repaired or stopped at.
    `mend` takes the replica back to its master if the master `overrules` or was elected; None if nothing can.
    """

    def __init__(self, on_loss: OnLoss, mend: Callable[[], None] | None = None, *, overrules: bool = False) -> None:
        self._on_loss = on_loss
        self._mend = mend
        self._overrules = overrules
        self.counts: Mapping[str, int] = {}

    def count(self, conditions: Iterable[Condition]) -> None:
        """Count the incidents that a batch has passed."""
        self.counts = dict(Counter(self.counts) + Counter(condition.value for condition in conditions))

    def meet(self, error: LogtwinError, lost: Lost) -> bool:
        """Handle `error`, which ended the log. Returns whether the log may go on.

        Do not call it during a batch. Raises TakenOver and ReplicaError if a loss cannot be passed, and what keeps the
        replica from being repaired.
        """
        condition = None if error.is_transient else condition_of(error)
        bounds = lost.bounds() if condition is not None and self._on_loss == "record" else None
        decision = decide(self._on_loss, error, lost.position, bounds, overrules=self._overrules)
        if isinstance(decision, Mend) and self._mend is not None:
            self._mend()
        elif isinstance(decision, Skip):
            lost.skip(_incident(decision, error, Action.SKIPPED))
            log.warning("%s; %s is on record, and the log goes on after it", error, decision.range)
        elif isinstance(decision, StopAndReport):
            _report(lost, _incident(decision, error, Action.REPORTED))
        self.count([] if condition is None else [condition])
        return isinstance(decision, Skip | Mend)


def _report(lost: Lost, incident: Incident) -> None:
    try:
        lost.report(incident)
    except LogtwinError as error:  # the error that stops the log is reported all the same
        log.warning("%s of %s cannot be put on record: %s", incident.condition.value, incident.range, error)


def _incident(decision: Skip | StopAndReport, error: LogtwinError, action: Action) -> Incident:
    return Incident(
        condition=decision.condition,
        start=decision.range.start,
        end=decision.range.end,
        cause=cause_of(error),
        action=action,
        detected_at=time.time_ns() // 1000,
    )
