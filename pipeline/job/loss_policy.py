"""Decides what happens to a log that an error has ended. Pure; `sources/loss.py` names the conditions.

::

    on_loss     condition                            the log
    fail        any                                  stops; nothing is written
    record      below_minimum, at the position       passes what the master no longer holds, and goes on
    record      Way.REPAIR                           stops, and says so in table incidents
    record      any other                            stops: damage that a reader can pass never comes here as an error
    either      Way.REPAIR, of a master that         goes back to what both share, and on from there; but an empty
                overrules; failed_over               master (recreated) has to be accepted by a person

If the master overrules, a repair that was begun but not finished is finished, too.

An error that is no loss, such as a master that is away, is `Stop`, too. Whether to try again is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

from sources.errors import LogtwinError, RepairPending, ReplicaError, WayBackPending, error_from
from sources.loss import Condition, OnLoss, WayPast, condition_of
from sources.offsets import Offset, OffsetRange

_OTHER_WAY = 'With on_loss = "record" the log goes on after it, and the loss is on record.'


@dataclass(frozen=True, slots=True)
class Stop:
    """The error ends the log; nothing is recorded."""


@dataclass(frozen=True, slots=True)
class Skip:
    """`range` is lost; the log goes on after it."""

    condition: Condition
    range: OffsetRange


@dataclass(frozen=True, slots=True)
class StopAndReport:
    """The error ends the log; `range` is in doubt until it is repaired."""

    condition: Condition
    range: OffsetRange


@dataclass(frozen=True, slots=True)
class Mend:
    """The replica follows its master back, and the log goes on."""


def decide(
    on_loss: OnLoss,
    error: LogtwinError,
    position: Offset | None,
    bounds: OffsetRange | None,
    *,
    overrules: bool = False,
) -> Stop | Skip | StopAndReport | Mend:
    """What to do about `error`, which ended a log at `position`; `bounds` is what its master holds now, if known.

    `overrules` is the master's (`Traits.overrules`). After a fail-over an elected master always overrules, by the
    rule of its group.
    """
    condition = condition_of(error)
    overrules = overrules or condition is Condition.FAILED_OVER or isinstance(error, WayBackPending)
    if overrules and (isinstance(error, RepairPending) or (position is not None and _is_mended(condition))):
        return Mend()
    if condition is None or on_loss == "fail" or position is None:
        return Stop()
    if condition is Condition.BELOW_MINIMUM and bounds is not None and position < bounds.start:
        return Skip(condition, OffsetRange(position, bounds.start))
    if condition.way is WayPast.REPAIR:
        return StopAndReport(condition, OffsetRange(_doubtful_from(condition, error, position, bounds), position))
    return Stop()


def _is_mended(condition: Condition | None) -> bool:
    return condition is not None and condition.way is WayPast.REPAIR and condition is not Condition.RECREATED


def _doubtful_from(condition: Condition, error: LogtwinError, position: Offset, bounds: OffsetRange | None) -> Offset:
    """Where the known difference begins: at the record that differs, or where the master's log ends."""
    if condition is Condition.REWRITTEN and error.offset is not None:
        return Offset(min(error.offset, position))
    return Offset(min(bounds.end, position)) if bounds is not None else position


def explained(error: LogtwinError, on_loss: OnLoss, position: Offset | None) -> LogtwinError:
    """`error`, which ended a log at `position`, with a hint what to do if it is a known condition."""
    condition = condition_of(error)
    if condition is None or error.is_transient or isinstance(error, ReplicaError):
        return error
    if condition.way is WayPast.REPAIR:
        kind = str(error.log).partition("/")[0]
        return error if position is None else _hinting(error, condition.hint_for(kind))
    if on_loss == "record" or (condition is Condition.BELOW_MINIMUM and position is None):
        return error
    return _hinting(error, f"{error.hint} {_OTHER_WAY}" if error.hint else _OTHER_WAY)


def _hinting(error: LogtwinError, hint: str) -> LogtwinError:
    return error_from({**error.facts(), "hint": hint})
