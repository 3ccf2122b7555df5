"""The one way from proven moves into the tables, for a batch of many logs and for one log by itself.

    one commit -> acknowledge -> what it owes to other tables -> maps that logs make -> hooks

The order is the guarantee: nothing is acknowledged that is not committed and, on a local disk, synced; what follows the
acknowledgement is in the commit's metadata, from which the next start can write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import SparkSession

from sinks.batch.result import BatchStep, no_step
from sinks.books.bookkeeping import Bookkeeping
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.positions import Move, Positions
from sinks.tables import TableSpec
from sources.errors import LogtwinError, of_log
from sources.master import Committed, Session
from sources.offsets import LogId

if TYPE_CHECKING:
    from sinks.batch.replica import Replica


Moving: TypeAlias = "Mapping[Replica, Move]"


class Landing:
    """Lands moves of one table's logs. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, warehouse: str, table: TableSpec) -> None:
        self.positions = Positions(KernelTable(spark, table.path(warehouse)))
        self.books = Bookkeeping(spark, warehouse)

    def land(
        self,
        on: Snapshot,
        moving: Moving,
        without: Callable[[Mapping[LogId, LogtwinError]], Moving],
        replayed: Sequence[Replica] = (),
        on_step: Callable[[BatchStep], None] = no_step,
    ) -> dict[LogId, LogtwinError]:
        """Commit `moving` on version `on`, where each was found as its move says, and do what follows.

        What is `replayed` is acknowledged with it: the promise may have been lost with the job that made it.
        `without` gets the logs that are lost since then, of which nothing is in the table, and gives what moves
        without them. Returns what a log met behind the commit. Raises ReplicaError for all.
        """
        while moving and (taken := self.positions.commit(on, list(moving.values()))):
            moving = without(taken)
            on = self.positions.newest()
        for mover, move in moving.items():
            mover.moved(move)
        if moving:
            on_step(BatchStep.COMMIT)
        if promised := [*moving, *replayed]:
            acknowledge(promised)
            on_step(BatchStep.ACKNOWLEDGE)
        if not moving:
            return {}
        self.books.settle({mover.log_id: move.to for mover, move in moving.items()})
        failed = _followed(moving)
        on_step(BatchStep.LEDGER)
        self.run_hooks()
        return failed

    def land_alone(self, mover: Replica, move: Move) -> None:
        """The same for one log by itself, on the newest version. Raises TakenOver, ReplicaError."""

        def refuse(taken: Mapping[LogId, LogtwinError]) -> Moving:
            raise taken[mover.log_id]

        on = self.positions.newest()
        if lost := self.positions.lost(on, {mover.log_id: move.mine}):
            refuse(lost)
        for error in self.land(on, {mover: move}, refuse).values():
            raise error

    def run_hooks(self) -> None:
        """Run what the commits to both tables have left to do; no batch waits for a checkpoint."""
        self.positions.run_hooks(checkpoint_aside=True)
        self.books.run_hooks(checkpoint_aside=True)


def acknowledge(movers: Iterable[Replica]) -> None:
    """Promise the masters of `movers` what is committed: once in each session, for all logs that share it."""
    promises: dict[Session, dict[LogId, Committed]] = {}
    for one in movers:
        if (committed := one.committed) is not None:
            promises.setdefault(one.session, {})[one.log_id] = committed
    for session, positions in promises.items():
        session.acknowledge(positions)


def _followed(movers: Iterable[Replica]) -> dict[LogId, LogtwinError]:
    failed = {}
    for mover in movers:
        try:
            mover.follow()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
            failed[mover.log_id] = of_log(error, str(mover.log_id))
    return failed
