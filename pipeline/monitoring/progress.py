"""The progress of one log's replication: a value that the job makes, and that display, status file and metrics read."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from sinks.batch.result import BatchStep
from sources.errors import LogtwinError
from sources.master import SessionState
from sources.offsets import LogId, Offset, Unit
from sources.retention import UntilLoss


class Phase(enum.Enum):
    """The phase of a log's life cycle. `LEADS_TO` has the allowed changes; `pipeline.job.replication` explains them."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


LEADS_TO: Mapping[Phase, frozenset[Phase]] = {
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.WAITING, Phase.STOPPED, Phase.FAILED}),
    Phase.RUNNING: frozenset({Phase.WAITING, Phase.DONE, Phase.STOPPED, Phase.FAILED}),
    Phase.WAITING: frozenset({Phase.RUNNING, Phase.WAITING, Phase.STOPPED, Phase.FAILED}),
    Phase.DONE: frozenset(),
    Phase.STOPPED: frozenset(),
    Phase.FAILED: frozenset(),
}
"""The phases that may follow each phase. Nothing follows an end."""

ENDED = frozenset(phase for phase, following in LEADS_TO.items() if not following)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """The progress of one partition of a topic. Offsets are None before they are known."""

    minimum: Offset | None  # the first offset that the master still has
    position: Offset | None
    acknowledged: Offset | None
    maximum: Offset | None  # where the partition ends at the master

    @property
    def lag_offsets(self) -> int | None:
        """How many offsets the replica is behind the master; None before the master was asked."""
        return _behind(self.position, self.minimum, self.maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of one log or topic; the offsets of a topic are the sums over its `partitions`.

    Totals (records to failures) are those of this run. Offsets are None before they are known.

        started_at <= position <= received          received: read and proven by tasks; position: committed
        session.acknowledged <= position
    """

    log_id: str
    phase: Phase
    role: str  # slave, consumer (Kafka), or reader, which the master does not know about
    master: str  # its HA address, or the directory
    master_role: str | None  # as it says: ASYNC_MASTER, SYNC_MASTER, SLAVE; None for files, and before it was asked
    started_at: Offset | None
    received: Offset | None
    position: Offset | None
    session: SessionState
    master_minimum: Offset | None
    master_maximum: Offset | None
    lag_s: float | None  # how long ago the first byte that is not committed was first seen at the master; 0 without one
    until_loss: UntilLoss | None  # None if nothing is at risk, or the master does not tell
    master_epoch: int | None = None  # number of the election that it won; None if it was not elected
    confirmed: Offset | None = None  # no fail-over takes back anything below it, as the master said last
    records: int = 0
    bytes: int = 0
    batches: int = 0  # including replays of what was committed before
    commits: int = 0  # batches that committed data
    stage_s: Mapping[BatchStep, float] = field(default_factory=dict)  # seconds spent up to each step of a batch
    incidents: Mapping[str, int] = field(default_factory=dict)  # condition -> how many were recorded or stopped at
    failures: Mapping[str, int] = field(default_factory=dict)  # error type -> how often one ended the query
    error: LogtwinError | None = None  # what ended it, or what it waits out
    last_failure: LogtwinError | None = None  # the last error that ended the query, healed or not
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)  # empty for a log

    @property
    def lag_offsets(self) -> int | None:
        """How many offsets the replica is behind the master; None before the master was asked."""
        return _behind(self.position, self.master_minimum, self.master_maximum)

    @property
    def lag_bytes(self) -> int | None:
        """The lag of a log whose offsets count bytes; None for any other."""
        return self.lag_in("bytes")

    def lag_in(self, unit: Unit) -> int | None:
        """The lag of a log whose offsets count `unit`; None for any other."""
        return self.lag_offsets if LogId.parse(self.log_id).unit == unit else None

    @property
    def acknowledged(self) -> Offset | None:
        """The last offset that was sent to the master as durable here; a consumer group has confirmed it."""
        return self.session.acknowledged

    @property
    def last_error(self) -> str | None:
        """The last error of the query or else of the session, healed or not."""
        return self.session.last_error if self.last_failure is None else str(self.last_failure)


def _behind(position: Offset | None, minimum: Offset | None, maximum: Offset | None) -> int | None:
    """The lag in offsets; a replica that holds nothing yet lacks all that the master holds."""
    reached = position if position is not None else minimum
    return None if reached is None or maximum is None else max(0, maximum - reached)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of a typed table in this run: rows made, seconds since it was up to date, and its error if any."""

    name: str
    rows: int
    unfit: int
    lag_s: float
    error: LogtwinError | None
