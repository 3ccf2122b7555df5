"""What a commit of a log owes to other tables: ledger rows, quarantined bytes, incidents.

All of it stands in the domain metadata of the commit (`LogState`), so that writing it can be repeated: by the batch
itself, and by the next start where the batch was killed in between.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from sinks.incidents import Incident, IncidentsTable
from sinks.ledger import Ledger
from sinks.log_state import LogState
from sinks.quarantine import Quarantine
from sinks.tables import LEDGER, QUARANTINE
from sources.offsets import LogId, Offset, Position


class Bookkeeping:
    """Of one log. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId) -> None:
        self._log_id = log_id
        self._ledger = Ledger(spark, LEDGER.path(warehouse))
        self._quarantine = Quarantine(spark, QUARANTINE.path(warehouse))
        self._incidents = IncidentsTable(spark, warehouse, log_id)

    def check(self, epoch: int, position: Offset | None) -> None:
        """Raises ReplicaError where the ledger is ahead of the table log."""
        self._ledger.check_below(Position(self._log_id, epoch, position or Offset(0)))

    def settle(self, state: LogState) -> bool:
        """Write what the commit of `state` owes and is not there yet; whether that was anything."""
        if state.offset is None:
            return False
        position = Position(self._log_id, state.epoch, state.offset)
        were_missing = (
            self._ledger.append(position, state.ledger),
            self._quarantine.append(position, state.quarantined),
            self._incidents.record(state.epoch, state.incidents) > 0,
        )
        return any(were_missing)

    def report(self, epoch: int, incident: Incident) -> None:
        """Write one that was only found: no commit passed it."""
        self._incidents.record(epoch, [incident])

    def run_hooks(self) -> None:
        self._ledger.run_hooks()
