"""What a repair does to the tables, step by step. Driver only.

    MARK ─▶ AUDIT ─▶ CUT ─▶ LEDGER ─▶ INCIDENTS ─▶ FINISH

From MARK to FINISH the log's state says that a repair is pending, and no job replicates the log (`Replica.open`). A
repair that is started again goes on with what the mark says, whatever the master says by then:

    AUDIT      a copy of the rows that go is in the table removed, under a transaction version of its own
    CUT        one commit takes the rows out, moves the position, begins the epoch, and leaves in the log's state what
               it owes to other tables
    LEDGER     no row of the ledger claims what is not in the table; the rest of the one that was cut is a row again
    INCIDENTS  what the repair answers, and what it took away with it, is open no more

Damage goes by the same steps, with CUT as its mark: the rows become a hole, the position stays.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.bookkeeping import Bookkeeping
from sinks.continuity import Link
from sinks.healing.damage import Damage
from sinks.healing.divergence import Divergence
from sinks.healing.ledger_rows import LedgerRows
from sinks.healing.removed import Removed
from sinks.healing.rewrite import Rows
from sinks.incidents import Action, Incident, IncidentRow, IncidentsTable, State
from sinks.kernel import KernelTable
from sinks.ledger import Ledger, LedgerRow
from sinks.log_state import LogState, PendingRepair, Writer
from sinks.position import Held, LogTable
from sinks.proof.stored_log import StoredLog
from sinks.tables import LEDGER, log_table
from sources.loss import Condition, Way
from sources.master import MasterLog
from sources.offsets import END, Offset, OffsetRange


class Step(Enum):
    """What a repair has just done, in order."""

    MARK = "mark"
    AUDIT = "audit"
    CUT = "cut"
    LEDGER = "ledger"
    INCIDENTS = "incidents"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What stays below the point to go back to: records up to `end`, the `rest` of a ledger row, the last record."""

    end: Offset
    rest: tuple[LedgerRow, ...] = ()
    link: Link | None = None


class RepairSteps:
    """Of one log, which `writer` has claimed. `on_step` is called after each step."""

    def __init__(
        self, spark: SparkSession, warehouse: str, master: MasterLog, writer: Writer, on_step: Callable[[Step], None]
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._log_id = master.log_id
        # a rule that does not look at all bytes may keep a last record that the master has not, byte for byte
        self._keeps_link = (master.proves_all or not master.overrules) and not master.has_free_offsets
        self._master = master
        self._writer = writer
        self._table = LogTable(spark, log_table(self._log_id).path(warehouse), self._log_id)
        self._on_step = on_step
        self._files = KernelTable(spark, log_table(self._log_id).path(warehouse))
        self._ledger = LedgerRows(spark, warehouse, self._log_id)
        self._stored = StoredLog(spark, warehouse, master)
        self._incidents = IncidentsTable(spark, warehouse, self._log_id)
        self._books = Bookkeeping(spark, warehouse)
        self._removed = Removed(spark, warehouse, self._log_id)

    def restore(self) -> None:
        """Take a repair that is pending to its end; or else write what the newest commits owe, as every start does."""
        held, state = self._held()
        if state.repair is None or state.repair.epoch > state.epoch:
            self._books.settle({self._log_id: state})
            self._settle_fill(held, state)
        self.complete()

    def mark(self, found: Divergence) -> None:
        """Decide: from here on the log goes back to the common point."""
        held, state = self._held()
        incident = _repaired(found.condition, found.out, found.cause)
        pending = PendingRepair(to=found.common, epoch=state.epoch + 1, found=incident)
        self._table.mark(held, replace(state, repair=pending, commit=uuid.uuid4().hex))
        self._on_step(Step.MARK)

    def complete(self) -> None:
        """Take what is marked to its end, from wherever it stopped."""
        held, state = self._held()
        if state.repair is not None:
            if state.repair.epoch > state.epoch:
                self._go_back(held, state, state.repair)
            self._follow()

    def take_out(self, damage: Damage, name: str, version: int) -> None:
        """Make a hole of `damage`. Rows that can be read are kept under `name` and a `version` that grows with it."""
        held, state = self._held()
        rows = Rows.of_log(self._log_id, damage.range)
        app_id = f"logtwin/removed/{name}"
        self._removed.keep(damage.readable, rows.condition, epoch=state.epoch, app_id=app_id, version=version)
        self._on_step(Step.AUDIT)
        found = _repaired(Condition.REPLICA_DAMAGED, damage.range, "damaged rows were taken out")
        pending = PendingRepair(to=Offset(state.offset or 0), epoch=state.epoch, found=found)
        after = replace(state, repair=pending, commit=uuid.uuid4().hex)
        self._table.cut(held, after, damage.range, lambda holes: holes.with_lost([damage.range]))
        self._on_step(Step.CUT)
        self._follow()

    def _settle_fill(self, held: Held, state: LogState) -> None:
        position = self._table.position_of(state)
        if position is not None:
            Ledger(self._spark, LEDGER.path(self._warehouse)).append_fill(position, held.holes.fills, held.holes.ledger)

    def _go_back(self, held: Held, state: LogState, pending: PendingRepair) -> None:
        self._settle_fill(held, state)  # one may have come in just before the mark, which keeps others out
        kept = self._kept_below(pending.out.start)
        out = Rows.of_log(self._log_id, OffsetRange(kept.end, END))
        self._removed.keep(
            out.files(self._files, held.snapshot),
            out.condition,
            epoch=pending.epoch,
            app_id=f"logtwin/removed/{self._log_id}",
            version=pending.epoch,
        )
        self._on_step(Step.AUDIT)
        after = replace(
            state,
            epoch=pending.epoch,
            offset=pending.to,
            first=_first(state, pending),
            branched_at=pending.to,
            link=kept.link if self._keeps_link else None,
            identity=self._master.identity(),
            mark=None,  # that of what is left is not known; whoever reads on learns it
            ledger=kept.rest,
            incidents=() if pending.found is None else (pending.found,),
            quarantined=(),
            commit=uuid.uuid4().hex,
        )
        lost = OffsetRange(kept.end, pending.to)
        self._table.cut(held, after, out.overlap.range, lambda holes: holes.below(pending.to).with_lost([lost]))
        self._on_step(Step.CUT)

    def _kept_below(self, to: Offset) -> _Kept:
        rows = self._ledger.overlapping(OffsetRange(Offset(to - 1), to)) if to else []
        if not rows:
            return _Kept(to)
        row = rows[-1]
        left = self._stored.rest(row, to)
        if left is None:
            return _Kept(to if row.end == to else row.start)
        rest, link = left
        if row.end == to:
            return _Kept(to, link=link if link.end == to else None)
        return _Kept(rest.end, (rest,), link if link.end == to else None)

    def _follow(self) -> None:
        """What other tables owe to the cut, then the end of the repair."""
        held, state = self._held()
        if (pending := state.repair) is None:
            return
        self._settle_fill(held, state)
        if pending.goes_back:
            self._ledger.take_out(pending.out, pc.field("epoch") < pending.epoch)
        elif pending.found is not None:
            self._ledger.take_out(pending.found.range, pc.field("deleted_at").is_null())
        self._books.settle({self._log_id: state})
        self._on_step(Step.LEDGER)
        if pending.goes_back:
            self._end_incidents(pending)
        self._on_step(Step.INCIDENTS)
        self._table.mark(held, replace(state, repair=None, commit=uuid.uuid4().hex))
        self._on_step(Step.FINISH)
        self._table.run_hooks()
        self._books.run_hooks()

    def _end_incidents(self, pending: PendingRepair) -> None:
        ended = [row.id for row in self._incidents.open() if row.found == pending.found or _is_over(row, pending)]
        note = f"repaired: the log went back to {pending.to}, where epoch {pending.epoch} begins"
        self._incidents.end(ended, State.HEALED, note, time.time_ns() // 1000)

    def _held(self) -> tuple[Held, LogState]:
        """Raises TakenOver where another run has the log."""
        mine = self._table.held_by(self._writer)
        held = self._table.read()
        self._table.check(held, mine)
        return held, mine


def _repaired(condition: Condition, affected: OffsetRange, cause: str) -> Incident:
    return Incident(
        condition=condition,
        start=affected.start,
        end=affected.end,
        cause=cause,
        action=Action.REPAIRED,
        detected_at=time.time_ns() // 1000,
    )


def _first(state: LogState, pending: PendingRepair) -> Offset:
    """Where the replica begins afterwards; anew, where nothing below the point it goes back to is kept."""
    if state.first is None or pending.out.start < pending.to:
        return pending.to
    return min(state.first, pending.to)


def _is_over(row: IncidentRow, pending: PendingRepair) -> bool:
    """Whether the repair took away what an incident of an older epoch is about.

    A hole or damage that begins below the common point is still there; where the two histories part is not.
    """
    if row.epoch >= pending.epoch or row.found.end <= pending.out.start:
        return False
    is_divergence = row.found.condition.way is Way.REPAIR and row.found.condition is not Condition.REPLICA_DAMAGED
    return is_divergence or row.found.start >= pending.out.start
