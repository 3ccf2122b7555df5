"""The conditions in which a log and its replica come apart; only this module names them. Pure.

A condition has a name, a cause in words, and a hint; each case has a range of offsets, where it lies. Only two things
decide what is done: the operator's `on_loss`, and the condition's `WayPast`:

    fail      the log stops, with the error's exit code and its hint; nothing of the range is passed over
    record    SKIP: the range becomes an incident, the bytes there go to quarantine, and the log goes on behind it
              REPAIR: nothing is skipped, because rows would have to be removed; `logtwin repair` does that

ACCEPT is of findings that no log stops at: the bytes are there, and they are the master's. A person accepts them, once.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    ACCEPT = "accept"


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
    QUEUE_JUMP = "queue_jump"

    @property
    def cause(self) -> str:
        return _WORDS[self].cause

    @property
    def hint(self) -> str:
        """Say what an operator can do, in words that hold for every kind of log that has no words of its own."""
        return _WORDS[self].hint

    def hint_for(self, kind: str) -> str:
        """Say what an operator can do about a log of this kind (`LogId.kind`)."""
        return _OF_TOPICS.get(self, self.hint) if kind == _TOPICS else self.hint

    def remedy_for(self, kind: str) -> str:
        """Return the command that heals a log of this kind, without the options that say which log and which range."""
        remedy = _WORDS[self].remedy
        return _FROM_MASTER if kind == _TOPICS and remedy == _FROM_COPY else remedy

    @property
    def way(self) -> WayPast:
        return _WORDS[self].way


_FROM_COPY: Final = "logtwin backfill --path DIR"
_FROM_MASTER: Final = "logtwin backfill"
_BACK: Final = "logtwin repair"
_ACCEPTED: Final = "logtwin repair --accept-master"
_CLOSED: Final = "logtwin incidents close"
_TOPICS: Final = "kafka"  # whose partitions are read from their brokers alone


@dataclass(frozen=True, slots=True)
class _Words:
    """Of one condition. A hint names its remedy, unless the log goes on by itself."""

    cause: str
    hint: str
    remedy: str
    way: WayPast


_WORDS: Final = {
    Condition.GAP: _Words(
        "A part of the log is not where it should be: a file of it is missing, or records do not join.",
        f"Fill it from a copy of the log: {_FROM_COPY}.",
        _FROM_COPY,
        WayPast.SKIP,
    ),
    Condition.BELOW_MINIMUM: _Words(
        "The master deleted it before it was replicated: retention overtook the replica.",
        f"Fill it from a copy of the old files, if there is one: {_FROM_COPY}.",
        _FROM_COPY,
        WayPast.SKIP,
    ),
    Condition.ABOVE_MAXIMUM: _Words(
        "The master's log ends below what the replica holds: it lost its tail, or it is another master.",
        f"Check the address. If the master is right, {_BACK} goes back to the last point both share.",
        _BACK,
        WayPast.REPAIR,
    ),
    Condition.REWRITTEN: _Words(
        "The master has other bytes than those that were replicated from the same offsets.",
        f"Check the address. If the master is right, {_BACK} goes back to the last point both share.",
        _BACK,
        WayPast.REPAIR,
    ),
    Condition.FAILED_OVER: _Words(
        "Another master was elected, which does not have all that was replicated from the one before.",
        "The log goes back by itself to where both histories part; what goes is kept in the table removed.",
        _BACK,
        WayPast.REPAIR,
    ),
    Condition.EPOCHS_CONTRADICT: _Words(
        "The master's list of epochs and what was replicated contradict each other.",
        "Its epochFileCheckpoint was lost, or it is another group: check the address, and bring the file back from "
        f"another replica. If the master is right all the same, {_ACCEPTED}.",
        _ACCEPTED,
        WayPast.REPAIR,
    ),
    Condition.CHECKSUM_FAILURE: _Words(
        "The body of a record is not what its checksum was made of: bytes changed at the master or on the way.",
        f"The bytes are in quarantine. Fill the range from another copy: {_FROM_COPY}.",
        _FROM_COPY,
        WayPast.SKIP,
    ),
    Condition.UNDECODABLE: _Words(
        "The bytes are no record: sizes, offsets or lengths in them contradict each other or their place.",
        f"The bytes are in quarantine. Fill the range from another copy: {_FROM_COPY}.",
        _FROM_COPY,
        WayPast.SKIP,
    ),
    Condition.RECREATED: _Words(
        "The master's log began anew: it is empty, or nothing of it is what was replicated.",
        f"More likely a wrong path or address than a lost log. If the log is lost, {_ACCEPTED}.",
        _ACCEPTED,
        WayPast.REPAIR,
    ),
    Condition.REPLICA_DAMAGED: _Words(
        "The replica's rows do not give the bytes that were replicated: a file of the table was changed or lost.",
        f"{_BACK} takes the range out and reads it from the master again.",
        _BACK,
        WayPast.REPAIR,
    ),
    Condition.QUEUE_JUMP: _Words(
        "The master itself has skipped or repeated queue offsets of a queue; the replica has every byte of it.",
        f"Nothing is to be healed. Look at the topic on the broker; {_CLOSED} accepts it.",
        _CLOSED,
        WayPast.ACCEPT,
    ),
}

_OF_TOPICS: Final = {
    Condition.GAP: f"If its brokers have it by now, {_FROM_MASTER} fills it.",
    Condition.BELOW_MINIMUM: "No broker brings back what its retention deleted. If brokers that were restored from a "
    f"copy have it, under the same topic id, {_FROM_MASTER} fills it.",
    Condition.CHECKSUM_FAILURE: "The bytes are in quarantine. If another replica of the partition has them whole, make "
    f"it the leader; then {_FROM_MASTER} fills the range.",
    Condition.UNDECODABLE: "The bytes are in quarantine. If another replica of the partition has them whole, make it "
    f"the leader; then {_FROM_MASTER} fills the range.",
    Condition.RECREATED: "The topic was deleted and created again, or this is another cluster: check the servers. To "
    f"follow what the cluster has now, {_ACCEPTED}; to keep both, give the cluster another name.",
}
"""Hints where the others are not true of partitions of topics."""

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
    """Return the condition of `error`; None if it is no loss: a configuration, a master that is away."""
    return next((condition for kind, condition in _BY_ERROR if isinstance(error, kind)), None)
