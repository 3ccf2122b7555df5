"""What a job does when a loss ends one of its logs: what `pipeline/loss_policy.py` decides, and the counting of it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from pipeline.loss_policy import Mend, Skip, StopAndReport, decide
from pipeline.master_watch import MasterWatch
from sinks.incidents import Action, Incident
from sinks.quarantine import cause_of
from sinks.replica import Replica
from sources.errors import LogtwinError
from sources.loss import Condition, OnLoss, condition_of
from sources.offsets import Offset, OffsetRange

log = logging.getLogger(__name__)


class LossRecord:
    """Of one log, in one run. `counts`: condition -> how many incidents this run recorded, mended or stopped at.

    `mend` takes the replica back to its master; None where the master does not overrule.
    """

    def __init__(self, on_loss: OnLoss, replica: Replica, watch: MasterWatch, mend: Callable[[], None] | None) -> None:
        self._on_loss = on_loss
        self._replica = replica
        self._watch = watch
        self._mend = mend
        self.counts: Mapping[str, int] = {}

    def count(self, conditions: Iterable[Condition]) -> None:
        """Of what a batch has passed."""
        self.counts = dict(Counter(self.counts) + Counter(condition.value for condition in conditions))

    def meet(self, error: LogtwinError, position: Offset | None) -> bool:
        """Do what is to be done about `error`, which ended the log at `position`; whether it may go on.

        Never while a batch is under way. Raises TakenOver, ReplicaError where a loss cannot be passed; and what keeps
        the replica from being mended.
        """
        condition = condition_of(error)
        bounds = self._bounds(position) if condition is not None and self._on_loss == "record" else None
        decision = decide(self._on_loss, error, position, bounds, overrules=self._mend is not None)
        if isinstance(decision, Mend) and self._mend is not None:
            self._mend()
        elif isinstance(decision, Skip):
            self._replica.skip(_incident(decision, error, Action.SKIPPED))
            log.warning("%s; %s is on record, and the log goes on behind it", error, decision.range)
        elif isinstance(decision, StopAndReport):
            self._report(_incident(decision, error, Action.REPORTED))
        self.count([] if condition is None else [condition])
        return isinstance(decision, Skip | Mend)

    def _bounds(self, position: Offset | None) -> OffsetRange | None:
        """What the master holds, asked anew if it answers: its retention goes on meanwhile."""
        with suppress(LogtwinError):
            self._watch.ask(position, time.monotonic())
        return self._watch.bounds

    def _report(self, incident: Incident) -> None:
        try:
            self._replica.report(incident)
        except LogtwinError as error:  # what stops the log is said all the same
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
