"""Retention of the replica itself: delete the oldest records, by age or by size, and keep a trace in the ledger.

Whole ranges of the ledger are deleted, from the front, in two commits: the first takes their records out of the table
log and makes them a hole (`LogTable.forget`), the second sets `deleted_at` in their rows of the ledger. After a kill in
between the hole says which rows lack it (`Holes.forgotten`), and `settle` sets it, or a backfill before it fills the
hole: its rows would stand beside those otherwise. The newest range is always kept, so a retention never reaches the
position.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.books.ledger import LedgerRows
from sinks.state.log_table import Held, LogTable
from sinks.tables import log_table
from sinks.warehouse import absolute
from sources.offsets import LogId, Offset, OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("start", "end", "records", "bytes", "last_store_timestamp", "committed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The least that a retention keeps: records stored within `age`, and `size_bytes` of the master's log."""

    age: timedelta | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """The range to delete, the bytes of the master's log that the replica holds before, and those that are deleted."""

    out: OffsetRange
    held_bytes: int
    out_bytes: int = 0


def boundary(ranges: pa.Table, keep: Keep, now: datetime) -> Offset | None:
    """The offset below which records are deleted; None if all are kept. Pure.

    `ranges` has the columns end, records, bytes, last_store_timestamp (null without a time) and committed_at of a log's
    ledger, in order; times are µs since 1970. With an age and a size, records that exceed either are deleted.
    """
    sizes = ranges["bytes"].to_numpy()
    goes = np.zeros(len(sizes), dtype=bool)
    if keep.age is not None:
        oldest_us = (now - keep.age - _EPOCH) // timedelta(microseconds=1)
        goes |= np.maximum.accumulate(_newest_us(ranges)) < oldest_us
    if keep.size_bytes is not None:
        goes |= sizes[::-1].cumsum()[::-1] - sizes >= keep.size_bytes
    count = int(goes[:-1].sum())  # counts from the front: each condition holds up to some row, and not behind it
    return ranges["end"][count - 1].as_py() if count else None


def _newest_us(ranges: pa.Table) -> npt.NDArray[np.int64]:
    """When the newest record of each range was stored; 0 for a range without a record.

    Where records have no time, or none that a table takes, it is the time of the commit, which is never earlier; so it
    is for all ranges if the master keeps no times at all.
    """
    stored, committed = ranges["last_store_timestamp"], ranges["committed_at"]
    if stored.null_count == len(stored):
        times = committed
    else:
        times = pc.coalesce(stored, pc.if_else(pc.equal(ranges["records"], 0), 0, committed))
    newest: npt.NDArray[np.int64] = times.fill_null(0).to_numpy()
    return newest


class ReplicaRetention:
    """The retention of one log. Driver only, without a Spark job."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId) -> None:
        self._log_id = log_id
        self._log = LogTable(spark, log_table(log_id).path(absolute(warehouse)), log_id)
        self._ledger = LedgerRows(spark, warehouse, log_id)

    def plan(self, keep: Keep, now: datetime) -> DeletionPlan:
        """Say what `apply` would delete, which may be nothing. Raises ReplicaError."""
        held, gone, position = self._front()
        if keep == Keep() and self._log_id.counts_bytes:  # the ledger need not be read
            in_holes = sum(hole.size for hole in held.holes.within(OffsetRange(Offset(0), position)))
            return DeletionPlan(OffsetRange(gone, gone), position - in_holes)
        ranges = self._ledger.within(OffsetRange(gone, position), _COLUMNS)
        below = boundary(ranges, keep, now) or gone
        out = ranges.filter(pc.less_equal(ranges["end"], below))
        return DeletionPlan(OffsetRange(gone, below), _bytes(ranges), _bytes(out))

    def apply(self, plan: DeletionPlan, now: datetime) -> int:
        """Delete what was planned. Returns the number of records. Raises ReplicaError.

        If rows of the ledger were joined over the planned end since, nothing is deleted: the next plan is of these.
        """
        if plan.out.is_empty or not self._ledger.keep_bounds(plan.out.end):
            return 0
        records = self._log.forget(plan.out.end)
        self.settle(now)
        return records

    def settle(self, now: datetime) -> int:
        """Set `deleted_at` of the ranges whose records a retention deleted. Returns how many ranges lacked it.

        Raises ReplicaError.
        """
        return self._ledger.set_deleted(lambda: self._log.read().holes.forgotten, now)

    def _front(self) -> tuple[Held, Offset, Offset]:
        """The log, where its remaining records begin, and its position; both are 0 for a log without data."""
        held = self._log.read()
        position = held.offset
        return held, min(held.holes.front, position), position


def _bytes(ranges: pa.Table) -> int:
    return pc.sum(ranges["bytes"]).as_py() or 0
