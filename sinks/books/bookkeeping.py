"""Write what a commit of logs owes to other tables: ledger rows, quarantined bytes, incidents, epochs.

All of it is in the domain metadata of the commit (`LogState`), so writing it can be repeated: by the batch itself, and
by the next start if the batch was killed in between.

The table `epochs` has, for each log whose master is elected, the epochs that its replicated records belong to, as the
log's state knows them. Its transaction version is the number of the newest epoch in it plus 1, because that number may
be 0. Each history of the log has its own: after a fail-over that took records back, its list is written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger
from sinks.books.quarantine import Quarantine
from sinks.delta.data_file import DataFile
from sinks.state.log_state import LogState
from sinks.tables import EPOCHS, LEDGER, QUARANTINE
from sources.epochs import Epoch, Epochs
from sources.offsets import LogId, Offset, Position


class Bookkeeping:
    """The bookkeeping of one table's logs. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, warehouse: str) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._ledger = Ledger(spark, LEDGER.path(warehouse))
        self._epochs = EpochsTable(spark, EPOCHS.path(warehouse))
        self._quarantine = Quarantine(spark, QUARANTINE.path(warehouse))

    def check(self, states: Mapping[LogId, LogState]) -> None:
        """Raise ReplicaError if the ledger is ahead of the table log."""
        self._ledger.check_below(Position(log, one.epoch, one.offset or Offset(0)) for log, one in states.items())

    def settle(self, states: Mapping[LogId, LogState]) -> set[LogId]:
        """Write what the commit of each of `states` owes, unless it is there. Returns the logs that lacked anything.

        The ledger rows of all logs are one commit. Raises ReplicaError.
        """
        owing = {
            Position(log, state.epoch, state.offset): state for log, state in states.items() if state.offset is not None
        }
        added = self._ledger.append_each({position: state.ledger for position, state in owing.items()})
        were_missing = {position.log_id for position in added}
        for position, state in owing.items():
            is_quarantined = self._quarantine.append(position, state.quarantined)
            is_new_epoch = self._epochs.append(position.log_id, state.epoch, state.epochs)
            is_told = state.incidents and self._incidents(position.log_id).record(state.epoch, state.incidents)
            if is_told or is_quarantined or is_new_epoch:
                were_missing.add(position.log_id)
        return were_missing

    def _incidents(self, log: LogId) -> IncidentsTable:
        return IncidentsTable(self._spark, self._warehouse, log)

    def run_hooks(self, *, checkpoint_aside: bool = False) -> None:
        self._ledger.run_hooks(checkpoint_aside=checkpoint_aside)


class EpochsTable:
    """The table `epochs`, created with its first row. Driver only."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table = FollowingTable(spark, EPOCHS, path)
        self._written: dict[str, int] = {}  # version by application, so that a known one is not asked for again

    def append(self, log_id: LogId, history: int, known: Epochs) -> bool:
        """Add the `known` epochs of a log's `history` that are not there yet. Returns whether there were any.

        Raises ReplicaError.
        """
        app = f"logtwin/epochs/{log_id}@{history}"
        if not known or self._written.get(app, 0) >= (version := known[-1].number + 1):
            return False
        self._table.ensure()
        before = self._table.versions([app])[app]
        new = [epoch for epoch in known if epoch.number >= before]
        is_added = bool(new) and self._table.append(app, version, lambda: [self._write(log_id, history, new)])
        self._table.run_hooks()
        self._written[app] = version
        return is_added

    def _write(self, log_id: LogId, history: int, epochs: Sequence[Epoch]) -> DataFile:
        rows = [
            {"log_id": str(log_id), "epoch": history, "number": one.number, "start": one.start}
            | {"master": one.master, "since": one.since_us}
            for one in epochs
        ]
        return self._table.written(rows, epochs[0].start)
