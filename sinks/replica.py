"""The replica of one log: what it has, and what a batch of its group brings it (`sinks/group.py`).

After a crash at any point a new Replica goes on at the table's position, and there is exactly one copy of everything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from pyspark.sql import SparkSession

from sinks.batch_proof import ProvenBatch, prove_batch
from sinks.bookkeeping import Bookkeeping
from sinks.handshake import Append, Replay, decide
from sinks.healing.ledger_rows import LedgerRows
from sinks.incidents import Incident
from sinks.kernel import KernelTable, Snapshot
from sinks.keyed_state import KeyedStateFollower
from sinks.ledger import LedgerRow
from sinks.log_state import LogState, Writer
from sinks.master_proof import prove_master
from sinks.position import LogTable, Move, Positions
from sinks.split_job import discard_files
from sinks.split_report import SplitReport
from sinks.steps import BatchResult
from sinks.tables import log_table
from sinks.tasks import LogWriter
from sinks.warehouse import absolute, ensure_tables
from sources.errors import MasterSilent, ReplicaError, TakenOver, naming
from sources.master import MasterLog, Session
from sources.offsets import LogId, Offset, OffsetRange

MOST_PATIENCE_S = 30.0
"""A batch waits for no log longer than that."""

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
        self._master = master
        self._session = session
        self._writer = writer or Writer.of_this_process()
        path = log_table(master.log_id).path(self._warehouse)
        self._table = LogTable(spark, path, master.log_id)
        self._positions = Positions(KernelTable(spark, path))
        self._bookkeeping = Bookkeeping(spark, self._warehouse)
        self._ledger = LedgerRows(spark, self._warehouse, master.log_id)
        self._keyed_state = KeyedStateFollower(spark, self._warehouse, master)
        self._state: LogState | None = None
        self._received: Offset | None = None
        self._fruitless = 0  # batches in a row that its master sent nothing for

    def open(self) -> Offset | None:
        """Make the tables, take the log, restore what its newest commit owes. Returns the position, None if fresh.

        Opened again, it goes on where it stands and takes nothing back from a run that started later.
        Raises ConfigurationError (a table that is not ours), ReplicaError, TakenOver; RepairPending, and leaves the
        log to the repair then.
        """
        open_together([self])
        return self.position()

    def prove_master(self) -> None:
        """See `sinks.master_proof`. Makes the session give way: it connects. Once the replica is open."""
        if self._opened().offset:
            with self._session.reading():
                self.prove_in_turn()

    def prove_in_turn(self) -> None:
        """The same for the session itself, whose turn it is to connect. From any thread."""
        state = self._opened()
        if state.offset:
            prove_master(self._master, state.offset, state.link, lambda: self._ranges(state))

    def skip(self, incident: Incident) -> None:
        """Pass over the range of `incident`, which begins at the position, in a commit of its own.

        Raises TakenOver, ReplicaError.
        """
        mine = self._opened()
        if incident.start != mine.offset:
            raise ValueError(f"{incident.range} does not begin at the position {mine.offset}")
        state = mine.moved_to(incident.end, first=incident.start, ledger=(), incidents=(incident,))
        held = self._table.read()
        self._table.check(held, mine)
        self._table.commit(held, state, lost=(incident.range,))
        self._state = state
        self._received = state.offset
        self._bookkeeping.settle({self.log_id: state})
        self.follow()
        self._run_hooks()

    def report(self, incident: Incident) -> None:
        """Put on record what was found and is not passed. Raises ReplicaError."""
        self._bookkeeping.report(self.log_id, self._opened().epoch, incident)

    def check_ownership(self) -> None:
        """Look whether this run still owns the log: one look at the table, never while a batch is under way.

        Raises TakenOver where a run that started later has claimed it, ReplicaError where the table does not tell.
        """
        self._table.held_by(self._writer)

    def position(self) -> Offset | None:
        """Up to where this run has committed, or found committed when it opened."""
        return self._opened().offset

    @property
    def state(self) -> LogState | None:
        """What this run has committed, or found committed when it opened; None before that. From any thread."""
        return self._state

    def epoch(self) -> int:
        """The history of the log that this run continues."""
        return self._opened().epoch

    def received(self) -> Offset | None:
        """Up to where the tasks have read and the coverage is proven; asked after `position`, never below that."""
        self._opened()
        return self._received

    def newest_stored_us(self) -> int | None:
        """`LogState.newest_stored_us` of what is committed."""
        return self._opened().newest_stored_us

    def decide(self, batch: OffsetRange) -> Replay | Append:
        """What of `batch` is new. Raises Gap, naming the log."""
        with naming(self.log_id):
            return decide(self._opened().offset, batch)

    def lost_in(self, snapshot: Snapshot) -> TakenOver | None:
        """That another run has the log, as far as that version of the table says."""
        return self._table.lost_in(snapshot, self._opened())

    def reading(self) -> AbstractContextManager[None]:
        """The turn to read, `Session.reading`."""
        return self._session.reading()

    def log_writer(self, patience_s: float | None = None) -> LogWriter:
        """What a task needs to read and write a part of this log. `patience_s` of a log that brought nothing the last
        times is longer: a record may be larger than what comes in that time.
        """
        mine = self._opened()
        longer_s = None if patience_s is None else min(patience_s * 2.0**self._fruitless, MOST_PATIENCE_S)
        master = self._master.continuing(mine.known)
        return LogWriter(master, mine.epoch, mine.offset, mine.link, self._warehouse, longer_s)

    def proven(self, reports: Sequence[SplitReport]) -> ProvenBatch | None:
        """What the tasks report, proven; None where nothing of it is new. Raises a task's error, Gap, CoverageError."""
        self._fruitless = self._fruitless + 1 if any(isinstance(one.error, MasterSilent) for one in reports) else 0
        with naming(self.log_id):
            proven = prove_batch(reports, self.position())
        if proven is not None:
            discard_files(self._warehouse, proven.late)
            self._received = proven.range.end
        return proven

    def move(self, proven: ProvenBatch) -> Move:
        """What the commit of `proven` does to this log: files, position, and what is owed to other tables."""
        mine, now_us = self._opened(), time.time_ns() // 1000
        state = mine.moved_to(
            proven.range.end,
            first=proven.range.start,
            ledger=proven.ledger(now_us),
            link=proven.link,
            mark=proven.mark,
            incidents=proven.incidents(now_us),
            quarantined=proven.quarantined,
        )
        return Move(self._table, mine, state, proven.files, proven.lost)

    def moved(self, move: Move) -> None:
        """`move` has landed."""
        self._state = move.to
        self._received = move.to.offset

    def acknowledge(self) -> None:
        """Promise the master what is committed."""
        mine = self._opened()
        if mine.offset is not None:
            self._session.acknowledge(mine.offset, mine.mark)

    def follow(self) -> None:
        """Bring the map that the log makes to its position. Raises ReplicaError."""
        self._keyed_state.follow()

    def acknowledge_again(self) -> BatchResult:
        """A replay: the promise may have been lost with the job that made it."""
        self.acknowledge()
        at = self.position() or Offset(0)
        return BatchResult(OffsetRange(at, at), 0, 0, is_overlap=False)

    def _take(self, states: Mapping[LogId, LogState]) -> None:
        self._state = states[self.log_id]
        self._received = self._state.offset

    def _run_hooks(self) -> None:
        self._table.run_hooks()
        self._bookkeeping.run_hooks()

    def _ranges(self, state: LogState) -> list[LedgerRow]:
        """What of the log the table has, in order, also what the newest commit still owes to the ledger."""
        known = self._ledger.overlapping(OffsetRange(Offset(0), state.offset or Offset(0)))
        owed = [row for row in state.ledger if not any(one.range.overlaps(row.range) for one in known)]
        return [*known, *owed]

    def _opened(self) -> LogState:
        if self._state is None:
            raise ReplicaError("the replica is not open", log=self.log_id, hint="Call open() first.")
        return self._state


def open_together(replicas: Sequence[Replica]) -> None:
    """`Replica.open` of several, which have one table, one writer and are all fresh or all opened before: one commit.

    Raises as that does; nothing is opened then.
    """
    first = replicas[0]
    ensure_tables(first._spark, first._warehouse, log_table(first.log_id))
    tables = [one._table for one in replicas]
    positions, books = first._positions, first._bookkeeping
    _refuse_repairs(tables, positions.found(tables))
    take = positions.claim if first._state is None else positions.held_by
    states = take(tables, first._writer)
    _refuse_repairs(tables, states)
    for one in replicas:
        books.check(one.log_id, states[one.log_id])
    restored = books.settle(states)
    for one in replicas:
        one._take(states)
        one.follow()
    if restored:
        _log.info("%s: restored what the newest commit owes to other tables", ", ".join(map(str, restored)))
    first._run_hooks()


def begin_together(starts: Sequence[tuple[Replica, Offset]], identity: str) -> None:
    """Let fresh replicas, which have one table and are open, begin where it says, with the log that `identity` names
    (`Known`). It is a commit: whatever happens, no later start begins elsewhere. Raises TakenOver, ReplicaError.
    """
    if not starts:
        return
    moves = []
    for one, start in starts:
        mine = one._opened()
        to = replace(mine.moved_to(start, first=start, ledger=()), identity=identity)
        moves.append(Move(one._table, mine, to))
    positions = starts[0][0]._positions
    on = positions.newest()
    for move in moves:
        if (taken := move.log.lost_in(on, move.mine)) is not None:
            raise taken
    _, lost = positions.commit(on, moves)
    for error in lost.values():
        raise error
    for (one, _), move in zip(starts, moves, strict=True):
        one.moved(move)


def _refuse_repairs(tables: Sequence[LogTable], states: Mapping[LogId, LogState | None]) -> None:
    for table in tables:
        table.refuse_repair(states[table.log_id])
