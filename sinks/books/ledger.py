"""The ledger: one row for each range that a commit to the log table contains.

The rows follow that commit (`sinks/books/follow_up_table.py`); the transaction version is the end of the newest range
in the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.data_file import DataFile
from sinks.tables import LEDGER
from sinks.values.ledger_row import BACKFILL, LedgerEntry, LedgerRow
from sources.errors import ReplicaError
from sources.offsets import LogId, Position

_WENT_BACK = "An entry of its Delta log was lost, or an older copy was restored."


def app_id(position: Position) -> str:
    """The Delta application whose transaction version is the end of the newest range of the log in the ledger."""
    return f"logtwin/ledger/{position.log_id}@{position.epoch}"


def fill_app_id(log_id: LogId) -> str:
    """The Delta application whose transaction version is the number of the newest fill of the log in the ledger."""
    return f"logtwin/ledger/{log_id}@{BACKFILL}"


class Ledger:
    """The ledger table. Driver only."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table = FollowingTable(spark, LEDGER, path)

    def check_below(self, positions: Iterable[Position]) -> None:
        """Raises ReplicaError if the ledger is above one of `positions`: then the table log went back."""
        wanted = {app_id(position): position for position in positions}
        for app, found in self._table.versions(wanted).items():
            position = wanted[app]
            if found > position.offset:
                raise ReplicaError(
                    "the table log has lost its newest commits, which its ledger knows",
                    log=position.log_id,
                    offset=position.offset,
                    expected=f"the position {found}, as in the ledger",
                    found=position.offset,
                    hint=f"{_WENT_BACK} Restore what is missing, or go on from here: logtwin repair.",
                )

    def append_each(self, owed: Mapping[Position, Sequence[LedgerRow]]) -> set[Position]:
        """Add the rows of the commit that led to each position, unless they are there. Returns the positions added."""
        positions = {app_id(position): position for position, rows in owed.items() if rows}

        def write(wanted: Collection[str]) -> Sequence[DataFile]:
            rows = [
                entry
                for app, position in positions.items()
                if app in wanted
                for entry in _of(position.log_id, position.epoch, owed[position])
            ]
            return [self._write(rows)]

        versions = {app: position.offset for app, position in positions.items()}
        return {positions[app] for app in self._table.append_each(versions, write)}

    def append_topic(self, topic: LogId, commits: int, rows: Sequence[LedgerEntry]) -> bool:
        """Add the rows of `topic`'s commit number `commits`, unless they are there. For an older version's table."""
        return self._append(f"logtwin/ledger/{topic}", commits, rows)

    def append_fill(self, position: Position, fills: int, rows: Sequence[LedgerRow]) -> bool:
        """Add the rows of fill number `fills`, unless they are there; `position` is any one in the log's epoch."""
        return self._append(fill_app_id(position.log_id), fills, _of(position.log_id, position.epoch, rows))

    def _append(self, app: str, version: int, rows: Sequence[LedgerEntry]) -> bool:
        return bool(rows) and self._table.append(app, version, lambda: [self._write(rows)])

    def run_hooks(self, *, checkpoint_aside: bool = False) -> None:
        self._table.run_hooks(checkpoint_aside=checkpoint_aside)

    def _write(self, rows: Sequence[LedgerEntry]) -> DataFile:
        values = [{"log_id": str(one.log_id), "epoch": one.epoch, **one.row.as_dict()} for one in rows]
        return self._table.written(values, rows[0].row.start)


def _of(log_id: LogId, epoch: int, rows: Sequence[LedgerRow]) -> list[LedgerEntry]:
    return [LedgerEntry(log_id, epoch, row) for row in rows]
