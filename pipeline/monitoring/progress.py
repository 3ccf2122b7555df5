"""How one log's replication stands: a value that the job makes and that display, status file and metrics read."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from sinks.batch.result import Step
from sources.errors import LogtwinError
from sources.master import SessionState
from sources.offsets import LogId, Offset, Unit
from sources.retention import UntilLoss


class Phase(enum.Enum):
    """Where a log is in its life; `LEADS_TO` says from where to where it goes, `pipeline.job.replication` by what."""

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
"""From which phase a log goes to which. An end is an end, whoever comes later."""

ENDED = frozenset(phase for phase, following in LEADS_TO.items() if not following)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """Where the replica of one partition of a topic is. Offsets are None before they are known."""

    minimum: Offset | None  # the first offset that the master still has
    position: Offset | None
    acknowledged: Offset | None
    maximum: Offset | None  # where the partition ends at the master

    @property
    def lag_offsets(self) -> int | None:
        """How many offsets the master has and the replica has not; None before the master was asked."""
        return _behind(self.position, self.minimum, self.maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where one log's replica is, or that of a topic: then offsets are the sums over its `partitions`.

    Totals (records to failures) are those of this run. Offsets are None before they are known.

        started_at <= position <= received          received: read and proven by tasks; position: committed
        session.acknowledged <= position
    """

    log_id: str
    phase: Phase
    role: str  # slave, consumer (of Kafka), or reader, of which the master knows nothing
    master: str  # its HA address, or the directory
    master_role: str | None  # its own word: ASYNC_MASTER, SYNC_MASTER, SLAVE; None of files, and before it was asked
    started_at: Offset | None
    received: Offset | None
    position: Offset | None
    session: SessionState
    master_minimum: Offset | None
    master_maximum: Offset | None
    lag_s: float | None  # how long ago the first byte that is not committed was first seen at the master; 0 without one
    until_loss: UntilLoss | None  # None where nothing is at risk, and where the master does not tell
    master_epoch: int | None = None  # the number of the election that it won; None of one that is not elected
    confirmed: Offset | None = None  # below which no fail-over takes anything back, as the master said last
    records: int = 0
    bytes: int = 0
    batches: int = 0  # replays of what was committed before among them
    commits: int = 0  # those batches that committed data
    stage_s: Mapping[Step, float] = field(default_factory=dict)  # seconds spent up to each step of a batch
    incidents: Mapping[str, int] = field(default_factory=dict)  # condition -> those recorded or stopped at
    failures: Mapping[str, int] = field(default_factory=dict)  # error type -> how often one ended the query
    error: LogtwinError | None = None  # what ended it, or what it waits out
    last_failure: LogtwinError | None = None  # the last one that ended the query, healed or not
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)  # of a topic; none of a log

    @property
    def lag_offsets(self) -> int | None:
        """How many offsets the master has and the replica has not; None before the master was asked."""
        return _behind(self.position, self.master_minimum, self.master_maximum)

    @property
    def lag_bytes(self) -> int | None:
        """The lag of a log whose offsets count bytes."""
        return self.lag_in("bytes")

    def lag_in(self, unit: Unit) -> int | None:
        """The lag of a log whose offsets count `unit`; None of any other."""
        return self.lag_offsets if LogId.parse(self.log_id).unit == unit else None

    @property
    def acknowledged(self) -> Offset | None:
        """The last offset promised to the master."""
        return self.session.acknowledged

    @property
    def last_error(self) -> str | None:
        """The last thing that went wrong, healed or not: of the query, else of the session."""
        return self.session.last_error if self.last_failure is None else str(self.last_failure)


def _behind(position: Offset | None, minimum: Offset | None, maximum: Offset | None) -> int | None:
    """A replica that has nothing yet wants all that the master holds."""
    reached = position if position is not None else minimum
    return None if reached is None or maximum is None else max(0, maximum - reached)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """What a run has made for a typed table; how long ago it last stood where its logs stood; what keeps it from it."""

    name: str
    rows: int
    unfit: int
    lag_s: float
    error: LogtwinError | None
