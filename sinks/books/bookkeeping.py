"""Write what a commit of logs owes to other tables: ledger rows, quarantined bytes, incidents, epochs.

All of it is in the domain metadata of the commit (`LogState`), so writing it can be repeated: by the batch itself, and
by the next start if the batch was killed in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from sinks.books.epochs import EpochsTable
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger
from sinks.books.quarantine import Quarantine
from sinks.state.log_state import LogState
from sinks.tables import EPOCHS, LEDGER, QUARANTINE
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
        """Raises ReplicaError if the ledger is ahead of the table log."""
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
