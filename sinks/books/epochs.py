"""The table `epochs`: for each log whose master is elected, the epochs that its replicated records belong to.

It keeps what the log's state says of them (`sinks/state/log_state.py`). A row follows the commit that has learnt of the
epoch (`sinks/books/follow_up_table.py`). The transaction version is the number of the newest epoch in the table plus 1,
because that number may be 0. Each history of the log has its own: after a fail-over that took records back, its list is
written again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.data_file import DataFile
from sinks.tables import EPOCHS
from sources.epochs import Epoch, Epochs
from sources.offsets import LogId


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
