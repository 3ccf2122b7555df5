"""Logs that advance together: the one way of a batch into the tables, whether it has many logs or only one.

    begin: the handshake of each log -> read: tasks write files and report -> prove: the coverage of each log
    -> land: one commit, then acknowledge, then settle: what it owes to other tables -> maps that logs make -> hooks

The order is the guarantee. Nothing is visible before the coverage is proven. Nothing is acknowledged that is not
committed and, on a local disk, synced. What follows the acknowledgement is in the commit's metadata, from which the
next start can write it.

Each log is proven by itself, and the proven ones are committed together. The damage, divergence or silence of one log,
or its loss to another job, does not affect the others. Only a failure of Spark or of the tables' storage, which keeps
all of them from being written, ends a batch as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.batch.coverage import new_part, one_batch
from sinks.batch.proof import BatchResult, BatchStep, SplitReport, no_step
from sinks.batch.reading_turns import entered, leave, lingering
from sinks.batch.replica import Replica
from sinks.batch.shared_file import without
from sinks.batch.tasks import discard_files, run_splits, write_splits
from sinks.books.bookkeeping import Bookkeeping
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.positions import Move, Positions
from sinks.storage.errors import failed_by
from sinks.tables import LOG, TableSpec
from sinks.values.incident import Incident
from sinks.warehouse import absolute
from sources.errors import LogtwinError, of_log
from sources.master import Committed, PlanFailed, Planned, PlannedSplit, Session
from sources.offsets import LogId, Offset, OffsetRange

Outcome = BatchResult | LogtwinError
"""The result of a batch for one log, or the error that left the log out."""


class Group:
    """Brings batches of logs, all of `table`, into the table. Driver only; one thread at a time.

    `on_step` is called after each step: for progress, and for tests that kill a batch there. `patience_s` is how long a
    batch of several logs waits for a master that sends little or nothing; None is as long as each log alone would wait.
    A log that is alone in a batch waits no longer if the group has others: their bytes may come meanwhile, and a log
    that needs longer gets a batch of its own (`bring`). Partitions of topics cannot: one that is alone in a batch may
    take its time.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        on_step: Callable[[BatchStep], None] = no_step,
        *,
        table: TableSpec = LOG,
        patience_s: float | None = None,
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._on_step = on_step
        self._patience_s = patience_s
        self._table = table
        self._positions = Positions(KernelTable(spark, table.path(self._warehouse)))
        self._books = Bookkeeping(spark, self._warehouse)

    def apply(self, planned: Sequence[Planned], replicas: Mapping[str, Replica]) -> dict[str, Outcome]:
        """Bring one batch into the table: the splits `planned` for the logs in `replicas`. Returns outcomes by log id.

        Raises LogtwinError if the batch failed for all of them.
        """
        parts = _parts(planned, replicas)
        clock = _Clock(self._on_step)
        on = self._begin(parts)
        reading = _open(parts)
        others_wait = len(reading) > 1 or (len(replicas) > 1 and self._table == LOG)
        patience_s = self._patience_s if others_wait else None
        with _turns(reading, patience_s) as inside:
            self._read(inside, patience_s)
        self._prove(parts)
        self._land(on, parts, clock)
        return {part.log_id: part.outcome or part.result(clock) for part in parts}

    def bring(self, replica: Replica, batch: OffsetRange) -> BatchResult:
        """Bring one batch of one log, read in this process: it waits longer than a group can.

        Raises what reading raises, and what a commit does.
        """
        part = _Part(replica, [PlannedSplit(str(replica.log_id), batch, batch)], is_alone=True)
        clock = _Clock(self._on_step)
        on = self._begin([part])
        with _turns(_open([part]), None) as inside:
            for one in inside:
                self._read_here(one)
        self._prove([part])
        self._land(on, [part], clock)
        return part.check() or part.result(clock)

    def skip(self, replica: Replica, incident: Incident) -> None:
        """Pass over the range of `incident`, which begins at the position, in a commit of its own.

        Raises TakenOver, ReplicaError.
        """
        mine = replica.opened()
        if incident.start != mine.offset:
            raise ValueError(f"{incident.range} does not begin at the position {mine.offset}")
        to = mine.moved_to(incident.end, first=incident.start, ledger=(), incidents=(incident,))
        part = _Part(replica, [], move=Move(replica.log_id, mine, to, lost=(incident.range,)))
        on, lost = self._to_commit_on([replica])
        part.outcome = lost.get(replica.log_id)
        self._land(on, [part], _Clock(self._on_step))
        part.check()

    def lost(self, replicas: Iterable[Replica]) -> dict[str, LogtwinError]:
        """An error for each of `replicas` that another run has taken, by log id. Reads the table once.

        Must not be called while a batch is under way. Raises ReplicaError if the table cannot be read.
        """
        held = [one for one in replicas if one.is_open]
        lost = self._lost(self._positions.newest(), held) if held else {}
        return {str(log_id): error for log_id, error in lost.items()}

    def _lost(self, on: Snapshot, replicas: Iterable[Replica]) -> dict[LogId, LogtwinError]:
        return self._positions.lost(on, {one.log_id: one.opened() for one in replicas})

    def _to_commit_on(self, replicas: Sequence[Replica]) -> tuple[Snapshot, dict[LogId, LogtwinError]]:
        """A version to build a commit on, and which of `replicas` are lost there.

        Only the newest version says that a log is lost: this run may have moved it by another Group, or opened it.
        """
        on = self._positions.to_commit_on()
        if not (lost := self._lost(on, replicas)):
            return on, lost
        on = self._positions.newest()
        return on, self._lost(on, replicas)

    def _begin(self, parts: Sequence[_Part]) -> Snapshot:
        """Return the version to commit the batch on. Parts that are lost there, or replays, are done."""
        on, lost = self._to_commit_on([part.replica for part in _open(parts)])
        for part in _open(parts):
            with part.owning():
                part.begin(lost.get(part.replica.log_id))
        return on

    def _read(self, parts: Sequence[_Part], patience_s: float | None) -> None:
        if not parts:
            return
        logs = {part.log_id: part.replica.log_writer(patience_s) for part in parts}
        reports: dict[str, list[SplitReport]] = {part.log_id: [] for part in parts}
        for report in run_splits(self._spark, [split for part in parts for split in part.splits], logs):
            reports[report.log_id].append(report)
        for part in parts:
            part.reports = reports[part.log_id]

    def _read_here(self, part: _Part) -> None:
        log = part.replica.log_writer(part.replica.patience_alone_s)
        try:
            part.reports = list(write_splits([(split, log) for split in part.splits]))
        except (OSError, pa.ArrowException) as error:
            raise failed_by(error)(
                "what was read cannot be written", log=part.log_id, offset=part.splits[0].owned.start, found=error
            ) from error

    def _prove(self, parts: Sequence[_Part]) -> None:
        for part in _open(parts):
            with part.owning():
                part.prove()
        out = [part for part in parts if part.outcome is not None]
        self._free(_open(parts), out)
        discard_files(self._warehouse, [report for part in out for report in part.reports])

    def _land(self, on: Snapshot, parts: Sequence[_Part], clock: _Clock) -> None:
        """Commit the moves on version `on`, where each log is as its move expects, and do what follows.

        Replays are acknowledged, too: the promise may have been lost with the job that made it.
        """
        replayed = [part.replica for part in parts if isinstance(part.outcome, BatchResult)]
        if _open(parts):
            clock.lap(BatchStep.FILES)
        moving = self._commit(on, parts)
        if moving:
            clock.lap(BatchStep.COMMIT)
        if promised := [*(part.replica for part in moving), *replayed]:
            acknowledge(promised)
            clock.lap(BatchStep.ACKNOWLEDGE)
        if not moving:
            return
        self._books.settle({part.replica.log_id: part.moved.to for part in moving})
        for part in moving:
            with part.owning():
                part.replica.follow()
        clock.lap(BatchStep.LEDGER)
        self._positions.run_hooks(checkpoint_aside=True)  # no batch waits for a checkpoint
        self._books.run_hooks(checkpoint_aside=True)

    def _commit(self, on: Snapshot, parts: Sequence[_Part]) -> list[_Part]:
        """Commit the moves, without logs that were lost after `on`: nothing of these is in the table."""
        moving = _open(parts)
        while moving and (taken := self._positions.commit(on, [part.moved for part in moving])):
            out = [part for part in moving if part.replica.log_id in taken]
            for part in out:
                part.outcome = taken[part.replica.log_id]
            moving = _open(moving)
            self._free(moving, out)
            on = self._positions.newest()
        for part in moving:
            part.replica.moved(part.moved)
        return moving

    def _free(self, rest: Sequence[_Part], out: Sequence[_Part]) -> None:
        """Rewrite files that the `rest` shares with logs that are `out`, because a file is committed as a whole."""
        names = {name for part in out for name in part.files}
        logs = {part.log_id for part in out}
        shared = {file.name: file for part in rest for file in part.moved.files if file.name in names}
        if not shared:
            return
        freed = {name: without(self._table, self._warehouse, file, logs) for name, file in shared.items()}
        for part in rest:
            part.move = replace(part.moved, files=[freed.get(file.name, file) for file in part.moved.files])


def acknowledge(replicas: Iterable[Replica]) -> None:
    """Promise the masters of `replicas` what is committed: once in each session, for all logs that share it."""
    promises: dict[Session, dict[LogId, Committed]] = {}
    for one in replicas:
        if (committed := one.committed) is not None:
            promises.setdefault(one.session, {})[one.log_id] = committed
    for session, positions in promises.items():
        session.acknowledge(positions)


@dataclass(slots=True)
class _Part:
    """One log's part of a batch in progress. It is done once it has an `outcome`."""

    replica: Replica
    splits: list[PlannedSplit]
    is_alone: bool = False
    outcome: Outcome | None = None
    reports: list[SplitReport] = field(default_factory=list)
    move: Move | None = None

    @property
    def log_id(self) -> str:
        return str(self.replica.log_id)

    @property
    def files(self) -> set[str]:
        return {name for report in self.reports for name in report.files}

    @property
    def moved(self) -> Move:
        if self.move is None:
            raise ValueError(f"{self.log_id} does not move")
        return self.move

    @contextmanager
    def owning(self) -> Iterator[None]:
        """An error inside becomes the outcome of this log alone."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
            self.outcome = of_log(error, self.log_id)

    def begin(self, lost: LogtwinError | None) -> None:
        if lost is not None:
            raise lost
        if new_part(one_batch(split.batch for split in self.splits), self.replica.position()).is_empty:
            self._stay()

    def prove(self) -> None:
        self.move = self.replica.move(self.reports, is_alone=self.is_alone)
        if self.move is None:
            self._stay()

    def _stay(self) -> None:
        """Take the batch for a replay, which is only acknowledged."""
        at = self.replica.position() or Offset(0)
        self.outcome = BatchResult(OffsetRange(at, at), 0, 0)

    def check(self) -> BatchResult | None:
        """Return the outcome, if there is one. Raises it if it is an error."""
        if isinstance(self.outcome, LogtwinError):
            raise self.outcome
        return self.outcome

    def result(self, clock: _Clock) -> BatchResult:
        """The result of a part that moved."""
        to, ledger = self.moved.to, self.moved.to.ledger
        records, size_bytes = sum(row.records for row in ledger), sum(row.bytes for row in ledger)
        return BatchResult(self.moved.range, records, size_bytes, clock.durations_s, to.incidents)


def _parts(planned: Iterable[Planned], replicas: Mapping[str, Replica]) -> list[_Part]:
    found: dict[str, _Part] = {}
    for row in planned:
        replica = replicas.get(row.log_id)
        if replica is None:  # it has left the group since it was planned; it is planned again when it is back
            continue
        part = found.setdefault(row.log_id, _Part(replica, []))
        if isinstance(row, PlanFailed):
            part.outcome = row.error.at(row.log_id)
        else:
            part.splits.append(row)
    return list(found.values())


def _open(parts: Iterable[_Part]) -> list[_Part]:
    """The parts that have no outcome yet."""
    return [part for part in parts if part.outcome is None]


@contextmanager
def _turns(parts: Sequence[_Part], within_s: float | None) -> Iterator[list[_Part]]:
    """Hold the turns to read of `parts`; yield the parts that got one. Each master is asked once for all its logs."""
    by_session: dict[Session, list[_Part]] = {}
    for part in parts:
        by_session.setdefault(part.replica.session, []).append(part)
    turns = [session.reading() for session in by_session]
    inside = []
    for of_session, turn, failure in zip(by_session.values(), turns, entered(turns, within_s), strict=True):
        for part in of_session:
            part.outcome = None if failure is None else of_log(failure, part.log_id)
        if failure is None:
            inside.append((of_session, turn))
    try:
        yield _open(parts)
    except BaseException as error:
        for _, turn in inside:
            leave(turn, error)
        raise
    for of_session, turn in inside:
        leave(turn, lingering(report.error for part in of_session for report in part.reports))


class _Clock:
    """Measures the seconds that each step takes, and tells `on_step` of it."""

    def __init__(self, on_step: Callable[[BatchStep], None]) -> None:
        self._on_step = on_step
        self.durations_s: dict[BatchStep, float] = {}
        self._since = time.monotonic()

    def lap(self, step: BatchStep) -> None:
        now = time.monotonic()
        self.durations_s[step] = now - self._since
        self._since = now
        self._on_step(step)
