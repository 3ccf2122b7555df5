"""Bring a replica back to its master: take out its own damage first, then go back to the last point that both share.

Damage comes first, because it is no reason to go back: its range becomes a hole, and a backfill reads it again.
Otherwise the master is always right, with one exception: a master that is empty, or has nothing of what was replicated,
is more likely a wrong path than a lost log, so an operator has to accept it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from pyspark.sql import SparkSession

from sinks.books.ledger import LedgerRows
from sinks.healing.damage import Books, DamageSearch, FoundDamage
from sinks.healing.divergence import Comparison, Divergence
from sinks.healing.repair_steps import RepairStep, RepairSteps, damaged_in
from sinks.state.fence import this_writer
from sinks.state.holes import Holes, TakenOut, joined
from sinks.state.log_state import LogState, PendingRepair, Writer
from sinks.state.log_table import Held, LogTable, held_at
from sinks.values.incident import State
from sinks.warehouse import absolute
from sources.errors import EpochsContradict, Recreated
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import END, LogId, Offset, OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """The way back from position `since` to the common point of `found`.

    `records` and `bytes` count what is taken out, in bytes of the master's log.
    """

    found: Divergence
    since: Offset
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The effect that a repair of a log at `position` had, or would have.

    `resumed` was pending. `taken_out` are damaged ranges, and `missing` the holes in such ranges; `others` is what was
    taken out of other logs, which had rows in the same damaged files.
    """

    position: Offset | None
    resumed: PendingRepair | None = None
    taken_out: tuple[OffsetRange, ...] = ()
    others: tuple[TakenOut, ...] = ()
    missing: tuple[OffsetRange, ...] = ()
    back: WayBack | None = None
    healed: int = 0
    comparisons: int = 0


_FOR_A_PERSON: Final = {
    Condition.RECREATED: (Recreated, "the master and the replica have nothing in common", "a record that both have"),
    Condition.EPOCHS_CONTRADICT: (
        EpochsContradict,
        "the master's epochs and its bytes contradict each other",
        "the bytes of the replica, up to where the epochs part",
    ),
}
"""Conditions that are repaired only if the master was accepted; else the error to raise, and its words."""


def _taken_out(damages: Iterable[FoundDamage]) -> tuple[OffsetRange, ...]:
    return joined(one for damage in damages for one in damage.taken.ranges)


def _others(taken: Iterable[TakenOut]) -> tuple[TakenOut, ...]:
    """Return the repair with each log once."""
    found: dict[tuple[LogId, int], tuple[OffsetRange, ...]] = {}
    for one in taken:
        found[one.log_id, one.epoch] = joined([*found.get((one.log_id, one.epoch), ()), *one.ranges])
    return tuple(TakenOut(*which, ranges) for which, ranges in sorted(found.items()))


class Repair:
    """A repair of one log. Driver only. It can be repeated, also after a kill at any point.

    `on_step` is as in `RepairSteps`.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        master: MasterLog,
        writer: Writer | None = None,
        on_step: Callable[[RepairStep], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._master = master
        self._writer = writer or this_writer()
        self._steps = steps = RepairSteps(spark, self._warehouse, master, self._writer, on_step)
        self._files, self._table, self._ledger = steps.files, steps.table, steps.ledger
        self._stored, self._incidents = steps.stored, steps.incidents

    def look(self, *, accept_master: bool = False) -> Repaired:
        """Say what `run` would do, and change nothing. A pending repair is only reported. Raises as `run` does."""
        state = self._begun()
        if state is None or state.offset is None:
            return Repaired(position=None)
        if state.repair is not None:
            return Repaired(position=state.offset, resumed=state.repair)
        held = self._table.read()
        search = self._search(held, lambda table, held: None)
        found = [
            damage for row in damaged_in(self._incidents) if (damage := search.damage_in(row.found.range)) is not None
        ]
        damaged = _taken_out(found)
        comparison, diverged = self._compare(state.offset, accept_master=accept_master)
        return Repaired(
            position=state.offset,
            taken_out=damaged,
            others=_others(one for damage in found for one in damage.others),
            missing=self._missing(held, damaged),
            back=None if diverged is None else self._way_back(diverged, state.offset),
            comparisons=comparison.comparisons,
        )

    def run(self, *, accept_master: bool = False, is_owner: bool = False) -> Repaired:
        """Claim the log from the run that has it, and repair it. With `is_owner` the writer has to have it already.

        Raises Recreated if the master has nothing in common with the replica, and EpochsContradict if its epochs and
        its bytes contradict each other, unless `accept_master`; ReplicaError, TakenOver (a job was started meanwhile),
        and what reading the master raises.
        """
        if self._begun() is None:
            return Repaired(position=None)
        mine = self._table.held_by(self._writer)[1] if is_owner else self._table.claim(self._writer)
        resumed = mine.repair
        self._steps.restore()
        damages = self._take_out_damaged()
        since = self._position()
        comparison, diverged = self._compare(since, accept_master=accept_master)
        if diverged is not None and (unreadable := self._take_out_unreadable(diverged.common)):
            damages.append(unreadable)
            comparison, diverged = self._compare(since, accept_master=accept_master)
        back = None if diverged is None else self._way_back(diverged, since)
        if diverged is not None:
            self._steps.mark(diverged)
            self._steps.complete()
        elif accept_master:
            self._steps.accept()
        held, taken_out = self._table.read(), _taken_out(damages)
        owed = () if resumed is None else resumed.others
        return Repaired(
            position=self._position(),
            resumed=resumed,
            taken_out=taken_out,
            others=_others([*owed, *(one for damage in damages for one in damage.others)]),
            missing=self._missing(held, taken_out),
            back=back,
            healed=self._heal(held, comparison, is_same=back is None),
            comparisons=comparison.comparisons,
        )

    def _begun(self) -> LogState | None:
        """The state of the log, if it has a position; else None."""
        state = None if self._files.snapshot() is None else self._table.read().state
        return None if state is None or state.offset is None else state

    def _position(self) -> Offset:
        position = self._table.held_by(self._writer)[1].offset
        if position is None:
            raise ValueError("a position does not go away")
        return position

    def _search(self, held: Held, settle: Callable[[LogTable, Held], None]) -> DamageSearch:
        @cache
        def books(log_id: LogId) -> Books:
            if log_id == self._master.log_id:
                return Books(held, self._ledger)
            found = held_at(held.snapshot, log_id)
            settle(LogTable(self._spark, self._files.path, log_id), found)
            return Books(found, LedgerRows(self._spark, self._warehouse, log_id))

        return DamageSearch(self._master.log_id, self._files, held.snapshot, self._stored, books)

    def _take_out_damaged(self) -> list[FoundDamage]:
        """Take out the damaged rows that incidents report and that are still damaged."""
        taken_out = []
        for row in damaged_in(self._incidents):
            while damage := self._search(self._table.read(), self._steps.settle).damage_in(row.found.range):
                self._steps.take_out(damage)
                taken_out.append(damage)
        return taken_out

    def _take_out_unreadable(self, start: Offset) -> FoundDamage | None:
        """Take out the rows from `start` on that going back there could not copy or rewrite."""
        damage = self._search(self._table.read(), self._steps.settle).unreadable(OffsetRange(start, END))
        if damage is not None:
            self._steps.take_out(damage)
        return damage

    def _missing(self, held: Held, taken_out: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The holes that damaged rows have left."""
        damaged = [row.found.range for row in damaged_in(self._incidents)] + list(taken_out)
        return tuple(hole for hole in held.holes.ranges if any(Holes(ranges=(hole,)).within(one) for one in damaged))

    def _compare(self, position: Offset, *, accept_master: bool) -> tuple[Comparison, Divergence | None]:
        """Raises Recreated, EpochsContradict."""
        state = self._table.read().state
        parted = None if state is None else self._master.continuing(state.known).parting()
        if parted is not None and parted.common is None and not accept_master:
            raise parted.error().at(self._master.log_id)
        comparison = Comparison(self._master, self._ledger, self._stored, position, self._master.bounds(), parted)
        rewritten = [row.found.range for row in self._incidents.open() if row.found.condition is Condition.REWRITTEN]
        found = comparison.find(rewritten)
        if found is not None and found.condition in _FOR_A_PERSON and not accept_master:
            kind, problem, expected = _FOR_A_PERSON[found.condition]
            raise kind(
                problem,
                log=self._master.log_id,
                offset=position,
                expected=expected,
                found=found.cause,
                hint=found.condition.hint_for(self._master.log_id.kind),
            )
        return comparison, found

    def _way_back(self, found: Divergence, since: Offset) -> WayBack:
        records, size_bytes = self._stored.count(OffsetRange(found.out.start, END))
        return WayBack(found=found, since=since, records=records, bytes=size_bytes)

    def _heal(self, held: Held, comparison: Comparison, *, is_same: bool) -> int:
        """End the incidents that no longer hold. Returns how many there were."""
        divergences = (Condition.ABOVE_MAXIMUM, Condition.RECREATED, Condition.EPOCHS_CONTRADICT)
        healed = [
            row.id
            for row in self._incidents.open()
            if (row.found.condition in divergences and is_same)
            or (row.found.condition is Condition.REWRITTEN and comparison.is_equal(row.found.range))
            or (row.found.condition is Condition.REPLICA_DAMAGED and self._is_whole(row.found.range, held))
        ]
        note = "repair found replica and master to be the same there"
        return self._incidents.end(healed, State.HEALED, note, time.time_ns() // 1000)

    def _is_whole(self, wanted: OffsetRange, held: Held) -> bool:
        return not held.holes.within(wanted) and all(map(self._stored.is_whole, self._ledger.overlapping(wanted)))
