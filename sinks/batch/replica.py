"""The replica of one log: what it has, and what a batch of its group brings it (`sinks/batch/group.py`).

After a crash at any point a new Replica goes on at the table's position, and there is exactly one copy of everything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.batch.landing import Landing, acknowledge
from sinks.batch.master_proof import prove_master
from sinks.batch.proof import ProvenBatch, SplitReport, prove_batch
from sinks.batch.reading_turns import leave, lingering
from sinks.batch.receiver import LogWriter
from sinks.batch.result import BatchResult
from sinks.batch.tasks import discard_files
from sinks.books.ledger_rows import LedgerRows
from sinks.delta.group_commit import GroupCommit
from sinks.delta.kernel import KernelConflict
from sinks.delta.retries import doubled_s, retrying
from sinks.history.keyed_state import KeyedStateFollower
from sinks.state.fence import refuse_repair, this_writer
from sinks.state.log_state import LogState, Writer
from sinks.state.positions import Move, owned_by, refused
from sinks.storage.errors import failed_by
from sinks.tables import log_table
from sinks.values.incident import Incident
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import absolute, ensure_tables
from sources.epochs import seen
from sources.errors import LogtwinError, MasterError, MasterSilent, ReplicaError, TakenOver, naming
from sources.master import Committed, MasterLog, PlannedSplit, Session
from sources.offsets import LogId, Offset, OffsetRange

FIRST_PATIENCE_S = 2.0
MOST_PATIENCE_S = 30.0
"""How long is waited for a record of one log alone: twice as long each time that none came, up to this."""

MOST_IN_GROUP_S = 8.0
"""The same for a log that cannot be read alone, and holds up its group meanwhile: up from the group's own patience."""

_log = logging.getLogger(__name__)


class Replica:
    """One log's replica, owned by one run. Driver only; one thread at a time unless said otherwise."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        master: MasterLog,
        session: Session,
        writer: Writer | None = None,
    ) -> None:
        self.log_id = master.log_id
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self.master = master
        self.session = session  # another one from when the replica went back
        self._writer = writer or this_writer()
        self._keyed_state = KeyedStateFollower(spark, self._warehouse, master)
        self._state: LogState | None = None
        self._received: Offset | None = None
        self._fruitless = 0  # attempts in a row that its master sent nothing for

    @cached_property
    def _landing(self) -> Landing:
        """Made on first use: a group has its own, for all its logs."""
        return Landing(self._spark, self._warehouse, log_table(self.log_id))

    def prove_master(self) -> None:
        """See `sinks.batch.master_proof`. It connects, in the turn of a reader or of the session. From any thread."""
        state = self.opened()
        if state.offset:
            master = self.session.reader_of(self.master.continuing(state.known))
            prove_master(master, state.offset, state.link, lambda: self._ranges(state))

    def skip(self, incident: Incident) -> None:
        """Pass over the range of `incident`, which begins at the position, in a commit of its own.

        Raises TakenOver, ReplicaError.
        """
        mine = self.opened()
        if incident.start != mine.offset:
            raise ValueError(f"{incident.range} does not begin at the position {mine.offset}")
        state = mine.moved_to(incident.end, first=incident.start, ledger=(), incidents=(incident,))
        self._landing.land_alone(self, Move(self.log_id, mine, state, lost=(incident.range,)))

    def report(self, incident: Incident) -> None:
        """Put on record what was found and is not passed. Raises ReplicaError."""
        self._landing.books.report(self.log_id, self.opened().epoch, incident)

    def position(self) -> Offset | None:
        """Up to where this run has committed, or found committed when it opened."""
        return self.opened().offset

    @property
    def is_open(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> LogState | None:
        """What this run has committed, or found committed when it opened; None before that. From any thread."""
        return self._state

    def received(self) -> Offset | None:
        """Up to where the tasks have read and the coverage is proven; asked after `position`, never below that."""
        self.opened()
        return self._received

    def log_writer(self, patience_s: float | None = None) -> LogWriter:
        """What a task needs to read and write a part of this log; its master has `patience_s`, or longer if it was
        silent that long and the log is not read alone (`bring`): it would never get on.
        """
        mine = self.opened()
        if patience_s is not None and self.master.traits.gains_logs:
            patience_s = doubled_s(patience_s, self._fruitless, max(patience_s, MOST_IN_GROUP_S))
        master = self.session.reader_of(self.master.continuing(mine.known))
        return LogWriter(master, mine.epoch, mine.offset, mine.link, self._warehouse, patience_s)

    @property
    def is_too_slow(self) -> bool:
        """Whether the time that a group had for it brought nothing: a record may be larger than what comes in that."""
        return self._fruitless > 0

    def bring(self, batch: OffsetRange) -> BatchResult:
        """One batch of this log by itself, read in this process: it is waited for longer than a group can wait.

        Raises what reading raises, and what a commit does.
        """
        patience_s = doubled_s(FIRST_PATIENCE_S, self._fruitless - 1, MOST_PATIENCE_S)
        slow = self._fruitless
        reports = [self._read_in_turn(batch, patience_s)]
        try:
            proven = self.proven(reports)
        except LogtwinError:
            discard_files(self._warehouse, reports)
            raise
        if proven is None:
            acknowledge([self])
            return self.stays()
        self._fruitless = slow  # the time was right; whether that of a group is, it finds out
        move = self.move(proven)
        self._landing.land_alone(self, move)
        return proven.result(move.to)

    def _read_in_turn(self, batch: OffsetRange, patience_s: float) -> SplitReport:
        turn = self.session.reading()
        turn.__enter__()
        try:
            report = self._read(batch, patience_s)
        except BaseException as error:
            leave(turn, error)
            raise
        leave(turn, lingering([report.error]))
        return report

    def _read(self, batch: OffsetRange, patience_s: float) -> SplitReport:
        try:
            return self.log_writer(patience_s).report(PlannedSplit(str(self.log_id), batch, batch))
        except (OSError, pa.ArrowException) as error:
            raise failed_by(error)(
                "what was read cannot be written", log=self.log_id, offset=batch.start, found=error
            ) from error

    def proven(self, reports: Sequence[SplitReport]) -> ProvenBatch | None:
        """What the tasks report, proven; None where nothing of it is new. Raises a task's error, Gap, CoverageError."""
        kind = MasterSilent if self.master.traits.gains_logs else MasterError
        errors = [one.error for one in reports if isinstance(one.error, kind) and one.error.is_transient]
        self._fruitless = self._fruitless + 1 if errors else 0
        with naming(self.log_id):
            proven = prove_batch(reports, self.position())
        if proven is not None:
            discard_files(self._warehouse, proven.late)
            self._received = proven.range.end
        return proven

    def move(self, proven: ProvenBatch) -> Move:
        """What the commit of `proven` does to this log: files, position, and what is owed to other tables."""
        mine, now_us = self.opened(), time.time_ns() // 1000
        state = mine.moved_to(
            proven.range.end,
            first=proven.range.start,
            ledger=proven.ledger(now_us),
            link=proven.link,
            mark=proven.mark,
            epochs=seen(mine.epochs, proven.epochs, now_us),
            incidents=proven.incidents(now_us),
            quarantined=proven.quarantined,
        )
        return Move(self.log_id, mine, state, proven.files, proven.lost)

    def moved(self, move: Move) -> None:
        """`move` has landed."""
        self._state = move.to
        self._received = move.to.offset

    @property
    def committed(self) -> Committed | None:
        """What its master may be promised; None before anything is committed."""
        mine = self.opened()
        return None if mine.offset is None else Committed(mine.offset, mine.mark)

    def follow(self) -> None:
        """Bring the map that the log makes to its position. Raises ReplicaError."""
        self._keyed_state.follow()

    def stays(self) -> BatchResult:
        """The result of a replay. It is acknowledged: the promise may have been lost with the job that made it."""
        at = self.position() or Offset(0)
        return BatchResult(OffsetRange(at, at), 0, 0, is_overlap=False)

    def _take(self, states: Mapping[LogId, LogState]) -> None:
        self._state = states[self.log_id]
        self._received = self._state.offset

    def _ranges(self, state: LogState) -> list[LedgerRow]:
        """What of the log the table has, in order, also what the newest commit still owes to the ledger."""
        ledger = LedgerRows(self._spark, self._warehouse, self.log_id)
        known = ledger.overlapping(OffsetRange(Offset(0), state.offset or Offset(0)))
        owed = [row for row in state.ledger if not any(one.range.overlaps(row.range) for one in known)]
        return [*known, *owed]

    def opened(self) -> LogState:
        """`state`, once it is open. Raises ReplicaError before that."""
        if self._state is None:
            raise ReplicaError("the replica is not open", log=self.log_id, hint="Open it first (open_together).")
        return self._state


def open_together(replicas: Sequence[Replica]) -> None:
    """Make the tables, take the logs, restore what their newest commits owe: in one commit for all of `replicas`, which
    have one table, one writer and are all fresh or all opened before.

    Their maps may take long, and do not follow yet (`Replica.follow`). Opened again, they go on where they stand and
    take nothing back from a run that started later. Raises ConfigurationError (a table that is not ours), ReplicaError,
    TakenOver; RepairPending, and leaves the logs to the repair then. Nothing is opened if it raises.
    """
    first = replicas[0]
    ensure_tables(first._spark, first._warehouse, log_table(first.log_id))
    positions, books, logs = first._landing.positions, first._landing.books, [one.log_id for one in replicas]
    on = positions.newest()
    _refuse_repairs(positions.found(on, logs))
    take = positions.held_by if first.is_open else positions.claim
    states = take(on, logs, first._writer)
    _refuse_repairs(states)
    books.check(states)
    restored = books.settle(states)
    for one in replicas:
        one._take(states)
    if restored:
        _log.info("%s: restored what the newest commit owes to other tables", ", ".join(map(str, restored)))
    first._landing.run_hooks()


def begin_together(fresh: Sequence[Replica], starts: Mapping[LogId, Offset], identity: str | None) -> list[LogId]:
    """Let `fresh` replicas of one master's logs, which are open, begin with the logs that `identity` names (`Known`).

    If none of the master's logs has a position, all of them begin where `starts` says, in one commit: also those that
    other jobs replicate, so that whichever comes first decides for all, and whatever happens, no later start begins
    elsewhere. Otherwise the master has gained the `fresh` ones since: they begin at 0, and are returned.
    Raises TakenOver, ReplicaError.
    """
    if not fresh:
        return []
    ours = {one.log_id: one for one in fresh}
    first = fresh[0]
    positions, writer = first._landing.positions, first._writer
    gained: list[LogId] = []
    for attempt in retrying(partial(refused, first.log_id)):
        with attempt:
            on = positions.newest()
            found = positions.found(on, [*starts])
            for log_id, one in ours.items():
                one._take({log_id: owned_by(writer, log_id, found[log_id])})  # another job may have begun it
            is_begun = any(state is not None and state.offset is not None for state in found.values())
            moves = []
            for log_id in ours if is_begun else starts:
                mine = found[log_id] or LogState.fresh(writer)
                if mine.offset is None:
                    at = Offset(0) if is_begun else starts[log_id]
                    to = replace(mine.moved_to(at, first=at, ledger=()), identity=identity)
                    moves.append(Move(log_id, mine, to))
            if moves and positions.commit(on, moves):
                raise KernelConflict("another job has claimed or begun some of the logs")
            for move in moves:
                if move.log_id in ours:
                    ours[move.log_id].moved(move)
            gained = [move.log_id for move in moves] if is_begun else []
    return gained


def lost_by(replicas: Iterable[Replica]) -> dict[LogId, TakenOver]:
    """An error for each of `replicas`, which have one table and one run, that another run has. Raises ReplicaError."""
    held = {one.log_id: one for one in replicas if one.is_open}
    if not held:
        return {}
    positions = next(iter(held.values()))._landing.positions
    found = positions.lost(positions.newest(), {log_id: one.opened() for log_id, one in held.items()})
    return {log_id: error for log_id, error in found.items() if isinstance(error, TakenOver)}


def _refuse_repairs(states: Mapping[LogId, LogState | None]) -> None:
    for log_id, state in states.items():
        refuse_repair(log_id, state)


@dataclass(eq=False, slots=True)
class _Wish:
    """A request to open replicas, all or none."""

    replicas: Sequence[Replica]
    failure: Exception | None = None


class Opening:
    """Opens the logs of one run, which share its `writer`: many in one commit. From any thread.

    Each log is started by a thread of its own, once its master has answered. A replica that comes while others are
    being opened waits, and is opened with all that wait by then; without those that cannot be opened.
    """

    def __init__(self) -> None:
        self.writer = this_writer()
        self._wanted: GroupCommit[_Wish] = GroupCommit(_open_all)

    def open(self, *replicas: Replica) -> None:
        """Open `replicas`, all of one table, as `open_together` does. If it raises, none of them is opened."""
        mine = _Wish(replicas)
        self._wanted.take(mine)
        if mine.failure is not None:
            raise mine.failure


def _open_all(wishes: Sequence[_Wish]) -> None:
    for _, alike in groupby(sorted(wishes, key=_kind), _kind):
        found = list(alike)
        _open(found)
        if len(found) > 1 and found[0].failure is not None:
            for wish in found:
                _open([wish])


def _kind(wish: _Wish) -> tuple[str, bool]:
    first = wish.replicas[0]
    return log_table(first.log_id).name, first.is_open


def _open(wishes: Sequence[_Wish]) -> None:
    failure: Exception | None = None
    try:
        open_together([one for wish in wishes for one in wish.replicas])
    except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
        failure = error
    for wish in wishes:
        wish.failure = failure
