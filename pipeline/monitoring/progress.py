"""The facts of one log's replication: what a job, the table and the master say, and what all readers are told.

`Progress` declares each once (see `pipeline/monitoring/facts.py`). Adding a field there adds it to the run file, to
``logtwin status`` and to the metrics, and a test then wants its row in docs/json.md or docs/metrics.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pipeline.monitoring.facts import UNIT, Fact, Metric, Readers, as_json
from sinks.batch.proof import BatchStep
from sources.bounds import UntilLoss
from sources.errors import LogtwinError, error_types
from sources.loss import Condition
from sources.master import SessionState
from sources.offsets import UNITS, LogId, Offset, Unit


class Phase(enum.StrEnum):
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


_OFFSETS: Final[tuple[Unit, ...]] = ("bytes", "ids")  # a topic has its lag alone: its offsets are its partitions'

Epoch = Annotated[int | None, Fact("of the table: which history of the log", Readers.STATUS)]
First = Annotated[Offset | None, Fact("of the table: where the replica begins", Readers.STATUS)]
Position = Annotated[
    Offset | None, Fact("up to where the log is in the table: the position"), Metric("committed_offset", units=_OFFSETS)
]
Acknowledged = Annotated[
    Offset | None,
    Fact(
        "up to where the master has been sent word that the log is durable, or the consumer group has confirmed it: "
        "producers that wait for the replica wait for this"
    ),
    Metric("acknowledged_offset", units=_OFFSETS),
]
AcknowledgedByMaster = Annotated[
    Offset | None,
    Fact(
        "up to where the master counts a slave's acknowledgement (5.x), or the consumer group has committed",
        Readers.STATUS,
    ),
]
MasterMinimum = Annotated[
    Offset | None,
    Fact("where the oldest record that the master holds begins"),
    Metric("master_minimum_offset", units=_OFFSETS),
]
MasterMaximum = Annotated[
    Offset | None,
    Fact("where the newest record that the master holds ends"),
    Metric("master_maximum_offset", units=_OFFSETS),
]
Lag = Annotated[
    int | None, Fact("what the master holds and the table does not", key=f"lag_{UNIT}"), Metric("lag", units=UNITS)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """The facts of one partition of a topic. Offsets are None before they are known."""

    epoch: Epoch = None
    first: First = None
    position: Position = None
    acknowledged: Acknowledged = None
    acknowledged_by_master: AcknowledgedByMaster = None
    master_minimum: MasterMinimum = None
    master_maximum: MasterMaximum = None
    lag: Lag = field(init=False)
    held_back_offsets: Annotated[
        int | None, Fact("what waits for an open transaction to end, behind `master_maximum`", Readers.STATUS)
    ] = None

    def __post_init__(self) -> None:
        lag = _behind(self.position, self.master_minimum, self.master_maximum)
        object.__setattr__(self, "lag", lag)


def _connected(progress: Progress) -> float | None:
    # A reader of files has no connection.
    return None if progress.role == "reader" else float(progress.connected_since is not None)


def _phases(progress: Progress) -> Mapping[str, float]:
    return {phase.value: float(phase is progress.phase) for phase in Phase}


def _stages(progress: Progress) -> Mapping[str, float]:
    return {step.value: progress.stage_s.get(step, 0.0) for step in BatchStep}


def _incidents(progress: Progress) -> Mapping[str, float]:
    return {condition.value: progress.incidents.get(condition.value, 0) for condition in Condition}


def _failures(progress: Progress) -> Mapping[str, float]:
    return {kind: progress.failures.get(kind, 0) for kind in error_types()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All facts of one log or topic, each declared here and nowhere else. Unknown ones are None.

    A job fills in what it knows, publishes it in the file of its run and as metrics; `pipeline/inspect/status.py` adds
    what the table and the master say. Totals (records to failures) are those of a run. Offsets of a topic are the sums
    over its `partitions`, of which a log has none.

        started_at <= position <= received          received: read and proven by tasks; position: committed
        acknowledged <= position
    """

    log_id: Annotated[str, Fact("the log or topic", key="id")]
    role: Annotated[str, Fact("`slave`, `consumer` (a group is told), or `reader`, of which the master knows nothing")]
    master: Annotated[str, Fact("the HA address, the directory or the servers")]
    master_role: Annotated[
        str | None, Fact("what the master calls itself: ASYNC_MASTER, SYNC_MASTER, SLAVE; null for files")
    ] = None
    master_epoch: Annotated[
        int | None,
        Fact("of a group that elects its master: number of the election that it won"),
        Metric("master_epoch"),
    ] = None
    confirmed: Annotated[
        Offset | None,
        Fact("of such a group: up to where no fail-over takes anything back, as the master said last"),
        Metric("confirmed_offset_bytes"),
    ] = None
    running: Annotated[bool, Fact("whether a job is alive", Readers.STATUS)] = False
    phase: Annotated[
        Phase | None,
        Fact("the last known phase of the last job: starting, running, waiting, done, stopped, failed", Readers.STATUS),
        Metric("phase", "1 for the phase that the log is in, 0 for every other one", label="phase", value=_phases),
    ] = None
    run: Annotated[str | None, Fact("the last job", Readers.STATUS)] = None
    host: Annotated[str | None, Fact("where it runs or ran", Readers.STATUS)] = None
    pid: Annotated[int | None, Fact("its process there", Readers.STATUS)] = None
    since: Annotated[str | None, Fact("when it started", Readers.STATUS)] = None
    updated_at: Annotated[str | None, Fact("when it last reported", Readers.STATUS)] = None
    connected_since: Annotated[
        str | None,
        Fact("since when the job's session with the master is connected; it is null unless the job runs"),
        Metric("connected", "1 while the session with the master is connected, else 0", value=_connected),
    ] = None
    reconnects: Annotated[
        int | None,
        Fact("connections to the master that the job's session had to make again"),
        Metric("reconnects_total"),
    ] = None
    epoch: Epoch = None
    first: First = None
    started_at: Annotated[Offset | None, Fact("where the run began", Readers.RUN_FILE)] = None
    received: Annotated[
        Offset | None, Fact("up to where the log was read and proven"), Metric("received_offset", units=_OFFSETS)
    ] = None
    position: Position = None
    acknowledged: Acknowledged = None
    acknowledged_by_master: AcknowledgedByMaster = None
    master_minimum: MasterMinimum = None
    master_maximum: MasterMaximum = None
    lag: Lag = field(init=False)
    lag_s: Annotated[
        float | None,
        Fact(
            "how long ago the first byte that is not committed was first seen at the master, at the most; 0 "
            "without one; only a running job knows"
        ),
        Metric("lag_seconds"),
    ] = None
    until_loss_bytes: Annotated[
        int | None,
        Fact("what the master may still delete before it reaches a byte that is not committed"),
        Metric("until_loss_bytes"),
    ] = None
    until_loss_s: Annotated[
        float | None,
        Fact("estimate of when the master deletes a byte that is not committed, at the earliest; 0: it may happen now"),
        Metric("until_loss_seconds"),
    ] = None
    writer: Annotated[str | None, Fact("of the table: which run owns the log", Readers.STATUS)] = None
    last_error: Annotated[
        str | None,
        Fact("why it waits, why it cannot acknowledge, or what ended the last job; null once all is well again"),
    ] = None
    unlisted: Annotated[
        bool | None,
        Fact("whether no server lists it any more, of what a pattern has found; only a running job knows"),
        Metric("unlisted", "1 while no server lists it any more, of what a pattern has found, else 0"),
    ] = None
    master_error: Annotated[str | None, Fact("why the master could not be asked just now", Readers.STATUS)] = None
    partitions: Annotated[
        Mapping[int, PartitionProgress], Fact("of a topic, one object a partition; empty for a log")
    ] = field(default_factory=dict)
    batches: Annotated[
        int,
        Fact("batches that Spark brought, replays of what was committed before among them", Readers.RUN_FILE),
        Metric("batches_total"),
    ] = 0
    commits: Annotated[
        int,
        Fact("batches that committed data, each in one commit to the log table", Readers.RUN_FILE),
        Metric("commits_total"),
    ] = 0
    records: Annotated[int, Fact("records committed", Readers.RUN_FILE), Metric("records_total")] = 0
    bytes: Annotated[int, Fact("bytes of the master's log committed", Readers.RUN_FILE), Metric("bytes_total")] = 0
    stage_s: Annotated[
        Mapping[BatchStep, float],
        Metric(
            "stage_seconds_total",
            "time that batches took up to the end of each stage, from the end of the one before",
            label="stage",
            value=_stages,
        ),
    ] = field(default_factory=dict)
    incidents: Annotated[
        Mapping[str, int],
        Metric(
            "incidents_total",
            "losses, damage and differences that this run put on record or stopped at, healed or not",
            label="condition",
            value=_incidents,
        ),
    ] = field(default_factory=dict)
    failures: Annotated[
        Mapping[str, int],
        Metric(
            "failures_total",
            "errors that ended the log's query or kept it from starting, healed or not, by their type",
            label="error",
            value=_failures,
        ),
    ] = field(default_factory=dict)
    error: LogtwinError | None = None  # what ended it, or what it waits out

    def __post_init__(self) -> None:
        lag = _behind(self.position, self.master_minimum, self.master_maximum)
        if self.partitions:
            lag = total(one.lag for one in self.partitions.values())
        object.__setattr__(self, "lag", lag)

    @property
    def unit(self) -> Unit:
        """The unit of its offsets."""
        return LogId.parse(self.log_id).unit

    def as_json(self, readers: Readers = Readers.STATUS) -> dict[str, Any]:
        """The facts that `readers` are told, by key."""
        each = sorted(self.partitions.items())
        parts = [{"partition": number} | as_json(one, readers, "offsets", ("offsets",)) for number, one in each]
        return as_json(self, readers, self.unit) | {"partitions": parts}


def of_job(
    *, session: SessionState, until_loss: UntilLoss | None, error: LogtwinError | None, **facts: Any
) -> Progress:
    """The progress of a log in a job: `facts`, and those in the state of its session and in what threatens it.

    `error` is what ended it, what it waits out, or what keeps a partition from being read.
    """
    since = session.connected_since
    return Progress(
        connected_since=None if since is None else since.isoformat(timespec="seconds"),
        reconnects=session.reconnects,
        acknowledged=session.acknowledged,
        last_error=session.last_error if error is None else str(error),
        error=error,
        until_loss_bytes=None if until_loss is None else until_loss.bytes,
        until_loss_s=None if until_loss is None else until_loss.seconds,
        **facts,
    )


def total(offsets: Iterable[int | None]) -> Offset | None:
    """The sum over partitions; None if one of them is unknown, or there are none."""
    known = list(offsets)
    return Offset(sum(one for one in known if one is not None)) if known and None not in known else None


def _behind(position: Offset | None, minimum: Offset | None, maximum: Offset | None) -> int | None:
    """The lag in offsets; a replica that holds nothing yet lacks all that the master holds."""
    reached = position if position is not None else minimum
    return None if reached is None or maximum is None else max(0, maximum - reached)


def _failing(table: TableProgress) -> float:
    return float(table.error is not None)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of a typed table in this run."""

    table: str
    rows: Annotated[int, Metric("table_rows_total", "messages that became rows of a typed table, or deleted one")]
    unfit_values: Annotated[
        int, Metric("table_unfit_values_total", "values that a typed table could not take, and bodies without a row")
    ]
    lag_s: Annotated[
        float,
        Metric("table_lag_seconds", "how long ago a typed table last stood where its logs stood, or the run began"),
    ]
    error: Annotated[
        LogtwinError | None,
        Metric("table_failing", "1 while a typed table cannot be updated, else 0; its logs go on", value=_failing),
    ]
