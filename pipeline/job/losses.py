"""What happens to a log that an error has ended. `sources/loss.py` names the conditions; `decide` is the one decision.

::

    on_loss     condition                            the log
    fail        any                                  stops; nothing is written
    record      below_minimum, at the position       passes what the master no longer holds, and goes on
    record      Way.REPAIR                           stops, and says so in table incidents
    record      any other                            stops: damage that a reader can pass never comes here as an error
    either      Way.REPAIR, of a master that         goes back to what both share, and on from there; but an empty
                overrules; failed_over               master (recreated) has to be accepted by a person

If the master overrules, a repair that was begun but not finished is finished, too.

An error that is no loss, such as a master that is away, stops it, too. Whether to try again is not decided here.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

from pyspark.sql import SparkSession

from sinks.batch.replica import Replica
from sinks.healing.repair import Repair, Repaired
from sinks.state.log_state import LogState, Writer
from sinks.values.incident import Action, Incident, cause_of
from sources.bounds import check_position
from sources.errors import (
    LogtwinError,
    MasterSilent,
    OffsetOutOfRange,
    RepairPending,
    ReplicaError,
    WayBackPending,
    error_from,
)
from sources.loss import Condition, OnLoss, WayPast, condition_of
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

log = logging.getLogger(__name__)

_OTHER_WAY = 'With on_loss = "record" the log goes on after it, and the loss is on record.'

MEND: Final = "mend"
"""The replica follows its master back, and the log goes on."""


def decide(
    on_loss: OnLoss,
    error: LogtwinError,
    position: Offset | None,
    bounds: OffsetRange | None,
    *,
    overrules: bool = False,
) -> Incident | Literal["mend"] | None:
    """Decide what to do about `error`, which ended a log at `position`; `bounds` are its master's now, if known.

    An incident that is SKIPPED is passed, and the log goes on after it; one that is REPORTED is put on record, and the
    log stops. None: it stops, and nothing is recorded. `overrules` is the master's (`Traits.overrules`). After a
    fail-over an elected master always overrules, by the rule of its group.
    """
    condition = condition_of(error)
    overrules = overrules or condition is Condition.FAILED_OVER or isinstance(error, WayBackPending)
    if overrules and (isinstance(error, RepairPending) or (position is not None and _is_mended(condition))):
        return MEND
    if condition is None or on_loss == "fail" or position is None:
        return None
    if condition is Condition.BELOW_MINIMUM and bounds is not None and position < bounds.start:
        return _incident(condition, error, Action.SKIPPED, position, bounds.start)
    if condition.way is WayPast.REPAIR:
        doubtful_from = _doubtful_from(condition, error, position, bounds)
        return _incident(condition, error, Action.REPORTED, doubtful_from, position)
    return None


def _incident(condition: Condition, error: LogtwinError, action: Action, start: Offset, end: Offset) -> Incident:
    return Incident(condition=condition, start=start, end=end, cause=cause_of(error), action=action)


def _is_mended(condition: Condition | None) -> bool:
    return condition is not None and condition.way is WayPast.REPAIR and condition is not Condition.RECREATED


def _doubtful_from(condition: Condition, error: LogtwinError, position: Offset, bounds: OffsetRange | None) -> Offset:
    """Where the known difference begins: at the record that differs, or where the master's log ends."""
    if condition is Condition.REWRITTEN and error.offset is not None:
        return Offset(min(error.offset, position))
    return Offset(min(bounds.end, position)) if bounds is not None else position


def explained(error: LogtwinError, on_loss: OnLoss, position: Offset | None) -> LogtwinError:
    """Return `error`, which ended a log at `position`, with a hint if it is a known condition."""
    condition = condition_of(error)
    if condition is None or error.is_transient or isinstance(error, ReplicaError):
        return error
    if condition.way is WayPast.REPAIR:
        kind = str(error.log).partition("/")[0]
        return error if position is None else _hinting(error, condition.hint_for(kind))
    if on_loss == "record" or (condition is Condition.BELOW_MINIMUM and position is None):
        return error
    return _hinting(error, f"{error.hint} {_OTHER_WAY}" if error.hint else _OTHER_WAY)


def concerned(
    error: LogtwinError, replicas: Mapping[str, Replica], held: Mapping[str, OffsetRange]
) -> list[tuple[Replica, LogtwinError]]:
    """Return the `replicas` of a topic that `error` concerns, each with its own error; `held` are the master's bounds.

    Retention seldom affects only one log, so all are checked. An error that names none of them concerns all that hold
    something.
    """
    if isinstance(error, OffsetOutOfRange) and held and (found := list(_not_held(replicas.values(), held))):
        return found
    if (named := replicas.get(str(error.log))) is not None:
        return [(named, error)]
    return [(one, error) for one in replicas.values() if _holds_something(one.state)]


def _not_held(replicas: Iterable[Replica], held: Mapping[str, OffsetRange]) -> Iterator[tuple[Replica, LogtwinError]]:
    for one in replicas:
        if one.state is not None and one.state.offset is not None:
            try:
                check_position(one.state.offset, held.get(str(one.log_id)), log=one.log_id)
            except OffsetOutOfRange as error:
                yield one, error


def _holds_something(state: LogState | None) -> bool:
    return state is not None and (state.offset or 0) > (state.first or 0)


def _hinting(error: LogtwinError, hint: str) -> LogtwinError:
    return error_from({**error.facts(), "hint": hint})


class Losses:
    """The losses of one master's logs in one run.

    `counts`: condition -> how many incidents this run recorded, repaired or stopped at.
    `skip` passes over an incident. `mend` takes a replica back to its master if the master `overrules` or was elected.
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
        """Whether the decision about `error` depends on the master's bounds by now: its retention goes on meanwhile."""
        return self._on_loss == "record" and not error.is_transient and condition_of(error) is not None

    def meet(self, error: LogtwinError, replica: Replica, held: OffsetRange | None) -> bool:
        """Handle `error`, which ended the log of `replica`; `held` are its bounds at the master, if known.

        Returns whether the log may go on. Do not call it during a batch. Raises TakenOver and ReplicaError if a loss
        cannot be passed, and what keeps the replica from being repaired.
        """
        condition = None if error.is_transient else condition_of(error)
        position = None if replica.state is None else replica.state.offset
        found = decide(self._on_loss, error, position, held, overrules=self._overrules)
        if found == MEND:
            self._mend(replica)
        elif isinstance(found, Incident):
            self._note(replica, replace(found, detected_at=time.time_ns() // 1000), error)
        self.count([] if condition is None else [condition])
        return found == MEND or (isinstance(found, Incident) and found.action is Action.SKIPPED)

    def _note(self, replica: Replica, incident: Incident, error: LogtwinError) -> None:
        if incident.action is Action.SKIPPED:
            self._skip(replica, incident)
            log.warning("%s; %s is on record, and the log goes on after it", error, incident.range)
            return
        try:
            replica.report(incident)
        except LogtwinError as failure:  # the error that stops the log is reported all the same
            log.warning("%s of %s cannot be put on record: %s", incident.condition.value, incident.range, failure)


def mend(spark: SparkSession, warehouse: str, master: MasterLog, writer: Writer, *, is_owner: bool) -> None:
    """Take the replica back to the last point that it shares with `master`, or a pending repair to its end.

    It is the repair of ``logtwin repair``, by the job's own writer, so that the job keeps the log. After a kill any of
    the two can finish it. `is_owner`: the log belongs to `writer`, and must still do so. Logs what was done.
    Raises what `Repair.run` raises, and MasterSilent if nothing differs any more, though something did a moment ago:
    the next try may differ again.
    """
    done = Repair(spark, warehouse, master, writer).run(is_owner=is_owner)
    if done.back is not None:
        back = done.back
        log.warning(
            "%s: %s; the master overrules: went back from %d to %d, %d records went to the table removed",
            master.log_id, back.found.cause, back.since, back.found.common, back.records,
        )  # fmt: skip
    elif done.resumed is not None:
        log.warning("%s: an unfinished repair was finished, at %s", master.log_id, done.position)
    elif not (done.taken_out or done.others):
        raise _unstable(master, done)
    for one in done.others:
        log.warning(
            "%s: rows of %s in %s were in the same damaged file, and taken out: logtwin repair --log %s",
            master.log_id, one.log_id, ", ".join(map(str, one.ranges)), one.log_id,
        )  # fmt: skip
    for hole in done.missing:
        log.warning("%s: %s was damaged in the replica itself: logtwin repair reads it again", master.log_id, hole)


def _unstable(master: MasterLog, done: Repaired) -> MasterSilent:
    return MasterSilent(
        "the master differed from the replica a moment ago, and does not any more",
        log=master.log_id,
        offset=done.position,
        expected="a log that only grows",
        found="the same records as in the replica",
        hint="The master may be rewriting its log: it is asked again. If this goes on, run logtwin verify.",
    )
