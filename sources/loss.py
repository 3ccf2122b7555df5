"""The conditions in which a log and its replica come apart; only this module names them. Pure.

A condition has a name, a cause in words, and a hint; each case has a range of offsets, where it lies. Only two things
decide what is done: the operator's `on_loss`, and the condition's `WayPast`:

    fail      the log stops, with the error's exit code and its hint; nothing of the range is passed over
    record    SKIP: the range becomes an incident, the bytes there go to quarantine, and the log goes on behind it
              REPAIR: nothing is skipped, because rows would have to be removed; `logtwin repair` does that
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ChecksumMismatch,
    CorruptRecord,
    EpochsContradict,
    FailedOver,
    Gap,
    LogtwinError,
    MissingSegment,
    OutOfMemory,
    Recreated,
    Rewritten,
)

OnLoss = Literal["fail", "record"]


class WayPast(Enum):
    """How a log gets past a condition."""

    SKIP = "skip"
    REPAIR = "repair"


class Condition(Enum):
    """The kind of a loss. The value is the name in tables, metrics and on the command line."""

    GAP = "gap"
    BELOW_MINIMUM = "below_minimum"
    ABOVE_MAXIMUM = "above_maximum"
    REWRITTEN = "rewritten"
    FAILED_OVER = "failed_over"
    EPOCHS_CONTRADICT = "epochs_contradict"
    CHECKSUM_FAILURE = "checksum_failure"
    UNDECODABLE = "undecodable"
    RECREATED = "recreated"
    REPLICA_DAMAGED = "replica_damaged"

    @property
    def cause(self) -> str:
        """Describe the condition in one sentence."""
        return _WORDS[self][0]

    @property
    def hint(self) -> str:
        """Say what an operator can do."""
        return _WORDS[self][1]

    @property
    def way(self) -> WayPast:
        return _WORDS[self][2]


_WORDS: Final = {
    Condition.GAP: (
        "A part of the log is not where it should be: a segment file is missing, or records do not join.",
        "Fill it from a copy of the log: logtwin backfill --path DIR.",
        WayPast.SKIP,
    ),
    Condition.BELOW_MINIMUM: (
        "The master deleted it before it was replicated: retention overtook the replica.",
        "Fill it from a copy of the old segment files, if there is one: logtwin backfill --path DIR.",
        WayPast.SKIP,
    ),
    Condition.ABOVE_MAXIMUM: (
        "The master's log ends below what the replica holds: it lost its tail, or it is another master.",
        "Check the address. If the master is right, logtwin repair goes back to the last point both share.",
        WayPast.REPAIR,
    ),
    Condition.REWRITTEN: (
        "The master has other bytes than those that were replicated from the same offsets.",
        "Check the address. If the master is right, logtwin repair goes back to the last point both share.",
        WayPast.REPAIR,
    ),
    Condition.FAILED_OVER: (
        "Another master was elected, which does not have all that was replicated from the one before.",
        "The log goes back by itself to where both histories part; what goes is kept in the table removed.",
        WayPast.REPAIR,
    ),
    Condition.EPOCHS_CONTRADICT: (
        "The master's list of epochs and what was replicated contradict each other.",
        "Its epochFileCheckpoint was lost, or it is another group: check the address, and bring the file back from "
        "another replica. If the master is right all the same, logtwin repair --accept-master.",
        WayPast.REPAIR,
    ),
    Condition.CHECKSUM_FAILURE: (
        "The body of a record is not what its checksum was made of: bytes changed at the master or on the way.",
        "The bytes are in quarantine. Fill the range from another copy: logtwin backfill --path DIR.",
        WayPast.SKIP,
    ),
    Condition.UNDECODABLE: (
        "The bytes are no record: sizes, offsets or lengths in them contradict each other or their place.",
        "The bytes are in quarantine. Fill the range from another copy: logtwin backfill --path DIR.",
        WayPast.SKIP,
    ),
    Condition.RECREATED: (
        "The master's log began anew: it is empty, or nothing of it is what was replicated.",
        "More likely a wrong path or address than a lost log. If the log is lost, logtwin repair --accept-master.",
        WayPast.REPAIR,
    ),
    Condition.REPLICA_DAMAGED: (
        "The replica's rows do not give the bytes that were replicated: a file of the table was changed or lost.",
        "logtwin repair takes the range out and reads it from the master again.",
        WayPast.REPAIR,
    ),
}

# A more special type comes before the one it derives from.
_BY_ERROR: Final = (
    (Gap, Condition.GAP),
    (MissingSegment, Condition.GAP),
    (BelowMinimum, Condition.BELOW_MINIMUM),
    (AboveMaximum, Condition.ABOVE_MAXIMUM),
    (FailedOver, Condition.FAILED_OVER),
    (Rewritten, Condition.REWRITTEN),
    (EpochsContradict, Condition.EPOCHS_CONTRADICT),
    (Recreated, Condition.RECREATED),
    (ChecksumMismatch, Condition.CHECKSUM_FAILURE),
    (CorruptRecord, Condition.UNDECODABLE),
)


def leaves_what_is_before(error: LogtwinError) -> bool:
    """Whether `error` is about one place in a log, lost, damaged or too large, so that what lies before it is sound."""
    condition = condition_of(error)
    return isinstance(error, OutOfMemory) or (condition is not None and condition.way is WayPast.SKIP)


def condition_of(error: LogtwinError) -> Condition | None:
    """Return the condition that `error` stands for; None if it is no loss: a configuration, a master that is away."""
    return next((condition for kind, condition in _BY_ERROR if isinstance(error, kind)), None)
