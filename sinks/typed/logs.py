"""The logs that a typed table follows, and their positions."""

from __future__ import annotations

from pyspark.sql import SparkSession

from sinks.delta.delta_log import Version
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.fence import logs_in, state_at
from sinks.state.position import Held, LogTable
from sinks.typed.definition import Definition
from sinks.warehouse import absolute
from sources.offsets import LogId, Offset


def positions_at(version: Version, wanted: Definition) -> dict[LogId, Offset]:
    """The positions of the logs that `wanted` follows and that have data at `version` of their table.

    Raises ReplicaError.
    """
    states = {one: state_at(version, one) for one in logs_in(version.domains()) if wanted.follows(one)}
    return {log_id: one.offset for log_id, one in states.items() if one is not None and one.offset}


class FollowedLogs:
    """The logs that one definition follows. Driver only; one thread at a time. Raises ReplicaError."""

    def __init__(self, spark: SparkSession, warehouse: str, wanted: Definition) -> None:
        self._spark = spark
        self._wanted = wanted
        self.table = KernelTable(spark, wanted.source.path(absolute(warehouse)))
        self._logs: dict[LogId, LogTable] = {}

    def held_in(self, on: Snapshot) -> dict[LogId, Held]:
        """The logs that have data at version `on` of `table`."""
        log_ids = (one for one in logs_in(on.domains()) if self._wanted.follows(one))
        found = {log_id: self._log(log_id).held_in(on) for log_id in log_ids}
        return {log_id: held for log_id, held in found.items() if held.offset}

    def newest(self) -> dict[LogId, Held]:
        """The logs that have data now; none if there is no table."""
        on = self.table.snapshot()
        return {} if on is None else self.held_in(on)

    def _log(self, log_id: LogId) -> LogTable:
        if log_id not in self._logs:
            self._logs[log_id] = LogTable(self._spark, self.table.path, log_id)
        return self._logs[log_id]
