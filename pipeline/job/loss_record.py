"""Handles a loss that ends one of a job's logs, as `loss_policy.py` decides, and counts incidents."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from pipeline.job.loss_policy import Mend, Skip, StopAndReport, decide
from sinks.batch.replica import Replica
from sinks.books.quarantine import cause_of
from sinks.values.incident import Action, Incident
from sources.errors import LogtwinError
from sources.loss import Condition, OnLoss, condition_of
from sources.offsets import OffsetRange

log = logging.getLogger(__name__)


class LossRecord:
    """The losses of one master's logs in one run.

    `counts`: condition -> how many incidents this run recorded, repaired or stopped at.
    `skip` passes over what is lost. `mend` takes a replica back to its master if the master `overrules` or was elected.
    """

    def __init__(
        self,
        on_loss: OnLoss,
        skip: Callable[[Replica, Incident], None],
        mend: Callable[[Replica], None],
        *,
        overrules: bool,
    ) -> None:
        self._on_loss = on_loss
        self._skip = skip
        self._mend = mend
        self._overrules = overrules
        self.counts: Mapping[str, int] = {}

    def count(self, conditions: Iterable[Condition]) -> None:
        """Count the incidents that a batch has passed."""
        self.counts = dict(Counter(self.counts) + Counter(condition.value for condition in conditions))

    def asks_for(self, error: LogtwinError) -> bool:
        """Whether what to do about `error` depends on what the master holds by now: its retention goes on meanwhile."""
        return self._on_loss == "record" and not error.is_transient and condition_of(error) is not None

    def meet(self, error: LogtwinError, replica: Replica, held: OffsetRange | None) -> bool:
        """Handle `error`, which ended the log of `replica`, of which the master holds `held`, if it is known.

        Returns whether the log may go on. Do not call it during a batch. Raises TakenOver and ReplicaError if a loss
        cannot be passed, and what keeps the replica from being repaired.
        """
        condition = None if error.is_transient else condition_of(error)
        position = None if replica.state is None else replica.state.offset
        decision = decide(self._on_loss, error, position, held, overrules=self._overrules)
        if isinstance(decision, Mend):
            self._mend(replica)
        elif isinstance(decision, Skip):
            self._skip(replica, _incident(decision, error, Action.SKIPPED))
            log.warning("%s; %s is on record, and the log goes on after it", error, decision.range)
        elif isinstance(decision, StopAndReport):
            _report(replica, _incident(decision, error, Action.REPORTED))
        self.count([] if condition is None else [condition])
        return isinstance(decision, Skip | Mend)


def _report(replica: Replica, incident: Incident) -> None:
    try:
        replica.report(incident)
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
