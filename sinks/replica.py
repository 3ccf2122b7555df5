"""The replica of one log: what `foreachBatch` calls for each batch of ranges.

    handshake -> tasks write files and report -> coverage proven -> one commit -> acknowledge -> bookkeeping -> hooks

The order is the promise. Nothing is visible before the coverage is proven; nothing is acknowledged that is not
committed and, on a local disk, synced; ledger, quarantine, incidents and the map that the log makes follow the
acknowledgement. After a crash at any point a new Replica goes on at the table's position, and there is exactly one copy
of everything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from sinks.batch_proof import ProvenBatch, prove_batch
from sinks.bookkeeping import Bookkeeping
from sinks.healing.ledger_rows import LedgerRows
from sinks.incidents import Incident
from sinks.keyed_state import KeyedStateFollower
from sinks.ledger import LedgerRow
from sinks.log_state import LogState, Writer
from sinks.master_proof import prove_master
from sinks.position import Held, LogTable
from sinks.split_job import discard_files, planned, run_splits
from sinks.split_report import SplitReport
from sinks.steps import BatchResult, Clock, Step, no_step
from sinks.tables import LOG
from sinks.tasks import SplitWriter
from sinks.warehouse import absolute, ensure_tables
from sources.errors import LogtwinError, ReplicaError
from sources.master import MasterLog, Session
from sources.offsets import Offset, OffsetRange

_log = logging.getLogger(__name__)


class Replica:
    """One log's replica, owned by one run. Driver only; Spark calls it for one batch after the other.

    `on_step` is called after each step: progress, and the tests' way to die there.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        master: MasterLog,
        session: Session,
        writer: Writer | None = None,
        on_step: Callable[[Step], None] = no_step,
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._master = master
        self._session = session
        self._writer = writer or Writer.of_this_process()
        self._on_step = on_step
        self._table = LogTable(spark, LOG.path(self._warehouse), master.log_id)
        self._bookkeeping = Bookkeeping(spark, self._warehouse, master.log_id)
        self._ledger = LedgerRows(spark, self._warehouse, master.log_id)
        self._keyed_state = KeyedStateFollower(spark, self._warehouse, master)
        self._state: LogState | None = None
        self._received: Offset | None = None
        self.last: BatchResult | None = None

    def open(self) -> Offset | None:
        """Make the tables, take the log, restore what its newest commit owes. Returns the position, None if fresh.

        Opened again, it goes on where it stands and takes nothing back from a run that started later.
        Raises ConfigurationError (a table that is not ours), ReplicaError, TakenOver; RepairPending, and leaves the
        log to the repair then.
        """
        ensure_tables(self._spark, self._warehouse)
        self._table.refuse_repair(self._table.read().state)
        state = self._table.claim(self._writer) if self._state is None else self._table.held_by(self._writer)
        self._table.refuse_repair(state)
        self._bookkeeping.check(state.epoch, state.offset)
        self._received = state.offset
        self._state = state
        if self._bookkeeping.settle(state):
            _log.info("%s: restored what the newest commit owes to other tables", self._master.log_id)
        self._keyed_state.follow()
        self._run_hooks()
        return state.offset

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
        held = self._table.read()
        self._table.check(held, mine)
        state = mine.moved_to(incident.end, first=incident.start, ledger=(), incidents=(incident,))
        self._table.commit(held, state, (), lost=(incident.range,))
        self._state = state
        self._received = state.offset
        self._bookkeeping.settle(state)
        self._keyed_state.follow()
        self._run_hooks()

    def report(self, incident: Incident) -> None:
        """Put on record what was found and is not passed. Raises ReplicaError."""
        self._bookkeeping.report(self._opened().epoch, incident)

    def check_ownership(self) -> None:
        """Look whether this run still owns the log: one look at the table, never while a batch is under way.

        Raises TakenOver where a run that started later has claimed it, ReplicaError where the table does not tell.
        """
        self._table.held_by(self._writer)

    def position(self) -> Offset | None:
        """Up to where this run has committed, or found committed when it opened."""
        return self._opened().offset

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

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Bring one batch of ranges (RANGES_SCHEMA) into the table. For `foreachBatch`.

        Raises LogtwinError with the token in its notes: through py4j only the text of the traceback arrives.
        """
        try:
            self._apply(batch)
        except LogtwinError as error:
            named = error.at(self._master.log_id)
            named.add_note(named.token())
            raise named from error

    def _apply(self, batch: DataFrame) -> None:
        mine = self._opened()
        held = self._table.read()
        self._table.check(held, mine)
        clock = Clock()
        write = SplitWriter(self._master, mine.epoch, mine.offset, mine.link, self._warehouse)
        splits = planned(batch, self._master.log_id, mine.offset)
        with self._session.reading():
            reports = run_splits(batch.sparkSession, splits, write)
        proven = self._prove(reports, mine.offset)
        if proven is None:
            self._acknowledge_again(mine.offset)
            return
        self._received = proven.range.end
        self._step(Step.FILES, clock)
        state = self._commit(held, mine, proven)
        self._step(Step.COMMIT, clock)
        self._session.acknowledge(proven.range.end)
        self._step(Step.ACKNOWLEDGE, clock)
        self._bookkeeping.settle(state)
        self._keyed_state.follow()
        self._step(Step.LEDGER, clock)
        self._run_hooks()
        self.last = BatchResult(
            range=proven.range,
            records=proven.records,
            bytes=sum(row.bytes for row in state.ledger),
            is_overlap=proven.is_overlap,
            durations_s=clock.durations_s,
            incidents=state.incidents,
        )

    def _prove(self, reports: Sequence[SplitReport], position: Offset | None) -> ProvenBatch | None:
        try:
            return prove_batch(reports, position)
        except LogtwinError:
            discard_files(self._warehouse, reports)
            raise

    def _commit(self, held: Held, mine: LogState, proven: ProvenBatch) -> LogState:
        """The one commit of the batch: files, transaction version, position, and what is owed to other tables."""
        now_us = time.time_ns() // 1000
        state = mine.moved_to(
            proven.range.end,
            first=proven.range.start,
            ledger=proven.ledger(now_us),
            link=proven.link,
            incidents=proven.incidents(now_us),
            quarantined=proven.quarantined,
        )
        self._table.commit(held, state, proven.files, lost=proven.lost)
        self._state = state
        return state

    def _acknowledge_again(self, position: Offset | None) -> None:
        """A replay: the promise may have been lost with the job that made it."""
        if position is None:
            return
        self._session.acknowledge(position)
        self._on_step(Step.ACKNOWLEDGE)
        self.last = BatchResult(OffsetRange(position, position), 0, 0, is_overlap=False)

    def _run_hooks(self) -> None:
        self._table.run_hooks()
        self._bookkeeping.run_hooks()

    def _ranges(self, state: LogState) -> list[LedgerRow]:
        """What of the log the table has, in order, also what the newest commit still owes to the ledger."""
        known = self._ledger.overlapping(OffsetRange(Offset(0), state.offset or Offset(0)))
        owed = [row for row in state.ledger if not any(one.range.overlaps(row.range) for one in known)]
        return [*known, *owed]

    def _step(self, step: Step, clock: Clock) -> None:
        clock.lap(step)
        self._on_step(step)

    def _opened(self) -> LogState:
        if self._state is None:
            raise ReplicaError("the replica is not open", log=self._master.log_id, hint="Call open() first.")
        return self._state
