"""The steps of a repair: what it does to the tables. Driver only.

    MARK ─▶ AUDIT ─▶ CUT ─▶ LEDGER ─▶ INCIDENTS ─▶ FINISH

From MARK to FINISH the log's state says that a repair is pending, and no job replicates the log (`open_together`). A
repair that is started again continues what the mark says, whatever the master says by then:

    AUDIT      a copy of the rows to take out is in the table removed, under a transaction version of its own
    CUT        one commit takes the rows out, moves the position, begins the epoch, and leaves in the log's state what
               it owes to other tables
    LEDGER     no row of the ledger claims what is not in the table; the rest of the row that was cut is a row again
    INCIDENTS  the incident that is repaired, and those about rows that were taken out, are closed

Damage is taken out by the same steps, with CUT as its mark: the rows become a hole, and the position stays. The same
commit takes out what other logs lose, as holes in metadata of their own, which the ledger has to follow. An incident
reports that loss before the commit, which is true whether the commit is made or not. The mark names these logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.books.bookkeeping import Bookkeeping
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger, LedgerRows
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.healing.damage import FoundDamage
from sinks.healing.divergence import Divergence
from sinks.healing.hole_filler import settle_holes
from sinks.healing.removed import Removed
from sinks.proof.stored import StoredLog
from sinks.state.holes import Holes, TakenOut, joined
from sinks.state.log_state import LogState, PendingRepair, Writer, new_id
from sinks.state.log_table import Held, LogTable
from sinks.state.rewrite import RowSelection
from sinks.tables import LEDGER, log_table
from sinks.values.continuity import Link
from sinks.values.incident import Action, Incident, IncidentRow, State
from sinks.values.ledger_row import LedgerRow
from sources.epochs import Epochs, below
from sources.errors import ReplicaError
from sources.loss import Condition, WayPast
from sources.master import MasterLog
from sources.offsets import END, LogId, Offset, OffsetRange

_OTHER_EPOCHS: Final = (Condition.EPOCHS_CONTRADICT, Condition.RECREATED)


class RepairStep(Enum):
    """The step that a repair has just done; members are in order."""

    MARK = "mark"
    AUDIT = "audit"
    CUT = "cut"
    LEDGER = "ledger"
    INCIDENTS = "incidents"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class _Kept:
    """The log below the point to go back to: records up to `end`, the `rest` of a ledger row, the last record."""

    end: Offset
    rest: tuple[LedgerRow, ...] = ()
    link: Link | None = None


class RepairSteps:
    """Repairs one log, which `writer` has claimed. `on_step` is called after each step.

    `table` is the log in its table, whose `files` are those of all its logs; `ledger`, `stored` and `incidents` are
    what the warehouse has of the log.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        master: MasterLog,
        writer: Writer,
        on_step: Callable[[RepairStep], None],
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._log_id = master.log_id
        # a rule that does not compare all bytes may keep a last record that differs from the master's
        self._keeps_link = (
            master.traits.proves_all or not master.traits.overrules
        ) and not master.traits.has_free_offsets
        self._master = master
        self._writer = writer
        self.table = LogTable(spark, log_table(self._log_id).path(warehouse), self._log_id)
        self._on_step = on_step
        self.files = KernelTable(spark, log_table(self._log_id).path(warehouse))
        self.ledger = LedgerRows(spark, warehouse, self._log_id)
        self.stored = StoredLog(spark, warehouse, master)
        self.incidents = IncidentsTable(spark, warehouse, self._log_id)
        self._books = Bookkeeping(spark, warehouse)
        self._removed = Removed(spark, warehouse, self._log_id)

    def restore(self) -> None:
        """Complete a pending repair, or else write what the newest commits owe, as every start does."""
        held, state = self.table.held_by(self._writer)
        if state.repair is None or state.repair.epoch > state.epoch:
            self._books.settle({self._log_id: state})
            self._settle_holes(self.table, held)
        self.complete()

    def settle(self, table: LogTable, held: Held) -> None:
        """Write what the newest commits of another log owe to its ledger, before the ledger is asked what is lost."""
        if held.state is not None and held.state.repair is None:
            self._books.settle({table.log_id: held.state})
            self._settle_holes(table, held)

    def mark(self, found: Divergence) -> None:
        """Commit the decision that the log goes back to the common point of `found`."""
        held, state = self.table.held_by(self._writer)
        incident = _repaired(found.condition, found.out, found.cause)
        pending = PendingRepair(to=found.common, epoch=state.epoch + 1, found=incident)
        self.table.mark(held, replace(state, repair=pending, commit=new_id()))
        self._on_step(RepairStep.MARK)

    def accept(self) -> None:
        """Follow the log that now has the name. It has everything that the replica holds, which may be nothing."""
        held, state = self.table.held_by(self._writer)
        accepted = replace(state, identity=self._master.identity(), mark=None, epochs=())
        if (accepted.identity, accepted.epochs) != (state.identity, state.epochs):
            self.table.mark(held, replace(accepted, commit=new_id()))

    def complete(self) -> None:
        """Complete the marked repair, from wherever it stopped."""
        held, state = self.table.held_by(self._writer)
        if state.repair is not None:
            if state.repair.epoch > state.epoch:
                self._go_back(held, state, state.repair)
            self._follow()

    def take_out(self, damage: FoundDamage) -> None:
        """Turn `damage` into holes, in all logs that have it. Readable rows are copied first.

        Raises RepairPending, ReplicaError.
        """
        self._keep_bounds(damage)
        held, state = self.table.held_by(self._writer)
        for one in damage.of_each:
            self._keep(one, damage, held.snapshot)
        self._on_step(RepairStep.AUDIT)
        at = Offset(state.offset or 0)
        out = _span(damage.taken.ranges) if damage.taken.ranges else OffsetRange(at, at)
        found = _repaired(Condition.REPLICA_DAMAGED, out, "damaged rows were taken out")
        pending = PendingRepair(to=at, epoch=state.epoch, found=found, others=damage.others)
        after = replace(state, repair=pending, commit=new_id())
        self.table.take_out(held, after, damage.of_each, damage.lost)
        self._on_step(RepairStep.CUT)
        self._follow()

    def _keep_bounds(self, damage: FoundDamage) -> None:
        """Raise ReplicaError if rows of the ledger that are taken out were joined with others since."""
        for taken in damage.of_each:
            edges = [edge for one in taken.ranges for edge in (one.start, one.end)]
            if edges and not LedgerRows(self._spark, self._warehouse, taken.log_id).keep_bounds(*edges):
                raise ReplicaError(
                    "rows of the ledger were joined while their damage was looked at",
                    log=taken.log_id,
                    offset=edges[0],
                    expected=f"rows that end at {', '.join(map(str, edges))}",
                    found="one that reaches over such an offset",
                    hint="Nothing was changed; run it again.",
                )

    def _keep(self, taken: TakenOut, damage: FoundDamage, on: Snapshot) -> None:
        """Report what is taken out of one log, and copy the rows that can be read."""
        if not taken.ranges:
            return
        lost, rows = {file.path for file in damage.lost}, RowSelection.taken_out([taken])
        Removed(self._spark, self._warehouse, taken.log_id).keep(
            [file for file in rows.files(self.files, on) if file.path not in lost],
            rows.condition,
            epoch=taken.epoch,
            app_id=f"logtwin/removed/{taken.log_id} {_span(taken.ranges)}",
            version=self._tell(taken, _cause(damage)),
        )

    def _tell(self, taken: TakenOut, cause: str) -> int:
        """Record an incident for each range that no open one covers. Returns the time of the newest incident, in µs.

        The result is the same after a kill.
        """
        incidents = IncidentsTable(self._spark, self._warehouse, taken.log_id)
        told = Holes(ranges=joined(row.found.range for row in damaged_in(incidents)))
        new = [one for one in taken.ranges if not told.hold(one)]
        incidents.record(taken.epoch, [_repaired(Condition.REPLICA_DAMAGED, one, cause) for one in new])
        moments = (
            row.found.detected_at
            for row in damaged_in(incidents)
            if any(one.overlaps(row.found.range) for one in taken.ranges)
        )
        return max(moments, default=time.time_ns() // 1000)  # none if an operator has closed it

    def _table_of(self, log_id: LogId) -> LogTable:
        return self.table if log_id == self._log_id else LogTable(self._spark, self.files.path, log_id)

    def _settle_holes(self, table: LogTable, held: Held) -> None:
        ledger = Ledger(self._spark, LEDGER.path(self._warehouse))
        settle_holes(ledger, LedgerRows(self._spark, self._warehouse, table.log_id), table, held)

    def _go_back(self, held: Held, state: LogState, pending: PendingRepair) -> None:
        self._settle_holes(self.table, held)  # a fill may have come just before the mark, which keeps others out
        kept = self._kept_below(pending.out.start)
        above = OffsetRange(kept.end, END)
        out = RowSelection.of_log(self._log_id, above)
        self._removed.keep(
            out.files(self.files, held.snapshot),
            out.condition,
            epoch=pending.epoch,
            app_id=f"logtwin/removed/{self._log_id}",
            version=pending.epoch,
        )
        self._on_step(RepairStep.AUDIT)
        after = replace(
            state,
            epoch=pending.epoch,
            offset=pending.to,
            first=_first(state, pending),
            branched_at=pending.to,
            link=kept.link if self._keeps_link else None,
            identity=self._master.identity(),
            mark=None,  # not known for what is left; the next batch learns it
            epochs=_epochs(state, pending),
            ledger=kept.rest,
            incidents=() if pending.found is None else (pending.found,),
            quarantined=(),
            commit=new_id(),
        )
        lost = OffsetRange(kept.end, pending.to)
        self.table.cut(held, after, above, lambda holes: holes.below(pending.to).with_lost([lost]))
        self._on_step(RepairStep.CUT)

    def _kept_below(self, to: Offset) -> _Kept:
        row = self._row_below(to)
        if row is None:
            return _Kept(to)
        left = self.stored.rest(row, to)
        if left is None:
            return _Kept(to if row.end == to else row.start)
        rest, link = left
        if row.end == to:
            return _Kept(to, link=link if link.end == to else None)
        return _Kept(rest.end, (rest,), link if link.end == to else None)

    def _row_below(self, to: Offset) -> LedgerRow | None:
        """The row of the ledger that has the offset before `to`, and is not joined with others from now on."""
        before, found = OffsetRange(Offset(max(0, to - 1)), to), None
        while (rows := self.ledger.overlapping(before)) and rows[-1] != found:  # it may be joined meanwhile
            found = rows[-1]
            if self.ledger.keep_bounds(found.start, found.end):
                break
        return found

    def _follow(self) -> None:
        """Bring other tables in line with the cut, then finish the repair."""
        held, state = self.table.held_by(self._writer)
        if (pending := state.repair) is None:
            return
        self._settle_holes(self.table, held)
        for one in pending.others:
            table = self._table_of(one.log_id)
            self._settle_holes(table, table.read())
        if pending.goes_back:
            self.ledger.take_out(pending.out, pc.field("epoch") < pending.epoch)
        self._books.settle({self._log_id: state})
        self._on_step(RepairStep.LEDGER)
        if pending.goes_back:
            self._end_incidents(pending)
        self._on_step(RepairStep.INCIDENTS)
        self.table.mark(held, replace(state, repair=None, commit=new_id()))
        self._on_step(RepairStep.FINISH)
        self.table.run_hooks()
        self._books.run_hooks()

    def _end_incidents(self, pending: PendingRepair) -> None:
        ended = [row.id for row in self.incidents.open() if row.found == pending.found or _is_over(row, pending)]
        note = f"repaired: the log went back to {pending.to}, where epoch {pending.epoch} begins"
        self.incidents.end(ended, State.HEALED, note, time.time_ns() // 1000)


def damaged_in(incidents: IncidentsTable) -> list[IncidentRow]:
    """The open incidents that say that the replica's own rows are damaged."""
    return [row for row in incidents.open() if row.found.condition is Condition.REPLICA_DAMAGED]


def _span(ranges: Sequence[OffsetRange]) -> OffsetRange:
    return OffsetRange(ranges[0].start, ranges[-1].end)


def _cause(damage: FoundDamage) -> str:
    if not damage.lost:
        return "the rows do not give the bytes that were replicated, and are taken out"
    files = ", ".join(file.path for file in damage.lost)
    return f"its rows in {files} cannot be read, and are taken out"


def _repaired(condition: Condition, affected: OffsetRange, cause: str) -> Incident:
    return Incident(
        condition=condition,
        start=affected.start,
        end=affected.end,
        cause=cause,
        action=Action.REPAIRED,
        detected_at=time.time_ns() // 1000,
    )


def _epochs(state: LogState, pending: PendingRepair) -> Epochs:
    """The epochs of what is left; none if the master's are to be believed instead."""
    is_the_masters = pending.found is not None and pending.found.condition in _OTHER_EPOCHS
    return () if is_the_masters else below(state.epochs, pending.to)


def _first(state: LogState, pending: PendingRepair) -> Offset:
    """Where the replica begins after the repair: at the point it goes back to, if nothing below that is kept."""
    if state.first is None or pending.out.start < pending.to:
        return pending.to
    return min(state.first, pending.to)


def _is_over(row: IncidentRow, pending: PendingRepair) -> bool:
    """Whether the repair took out what an incident of an older epoch is about.

    A hole or damage that begins below the common point is still there; a divergence is not.
    """
    if row.epoch >= pending.epoch or row.found.end <= pending.out.start:
        return False
    is_divergence = row.found.condition.way is WayPast.REPAIR and row.found.condition is not Condition.REPLICA_DAMAGED
    return is_divergence or row.found.start >= pending.out.start
