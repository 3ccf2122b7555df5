"""Fills holes of one log, batch by batch, while the stream of the log may go on.

    tasks write files and report -> coverage proven -> one commit -> ledger rows

A batch begins at a record boundary, at the edge of a hole or where the batch before it ended, and the last record of a
hole has to end exactly where the hole ends: another log's bytes hardly do. What was found damaged stays a hole. A
commit of files and holes touches nothing of the stream's; of two that fill one hole Kernel refuses the second, and then
the records are in the table already.

Killed anywhere, it is run again: what is committed is no hole any more, and the ledger rows of the newest fill stand in
the holes' metadata until the next fill, which restores them first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pyspark.sql import SparkSession

from sinks.batch.continuity import Link
from sinks.batch.proof import ProvenBatch, prove_batch
from sinks.batch.split_job import discard_files, discard_quarantined, run_splits
from sinks.batch.split_report import SplitReport
from sinks.batch.tasks import LogWriter, SplitWriter
from sinks.books.ledger import Ledger
from sinks.books.ledger_row import BACKFILL, LedgerRow
from sinks.books.ledger_rows import LedgerRows
from sinks.healing.owed import settle_holes
from sinks.state.holes import joined
from sinks.state.position import Held, LogTable
from sinks.tables import LEDGER, log_table
from sinks.warehouse import absolute
from sources.errors import CoverageError, LogtwinError
from sources.master import MasterLog, PlannedSplit
from sources.offsets import LogId, OffsetRange


class FillStep(Enum):
    """What a fill has just done, in order."""

    FILES = "files"
    COMMIT = "commit"
    LEDGER = "ledger"


def no_step(step: FillStep) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """One batch: all of `range` was read, and the records of `ranges` were committed. `link` is the last one.

    `bytes` are those of the master's log that the records take.
    """

    range: OffsetRange
    ranges: tuple[OffsetRange, ...]
    records: int
    bytes: int
    link: Link | None


class HoleFiller:
    """Driver only. `on_step` is called after each step: the tests' way to die there."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        log_id: LogId,
        on_step: Callable[[FillStep], None] = no_step,
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._log_id = log_id
        self._on_step = on_step
        self._table = LogTable(spark, log_table(log_id).path(self._warehouse), log_id)
        self._ledger = Ledger(spark, LEDGER.path(self._warehouse))
        self._ledger_rows = LedgerRows(spark, self._warehouse, log_id)

    def look(self) -> Held:
        """The log as it stands, once the ledger agrees with its holes. Raises RepairPending, ReplicaError."""
        held = self._table.read()
        self._table.refuse_repair(held.state)
        self._settle(held)
        return held

    def fill(
        self, held: Held, batch: OffsetRange, source: MasterLog, link: Link | None, free: OffsetRange | None = None
    ) -> Filled | None:
        """Bring `batch`, which begins in a hole of `held` at a record, from `source`; None if the hole is gone by now.

        `link` is the record before it, if the source has that; `free` the ids that no entry has, up to the end of the
        hole: they are claimed together with what is before them. Raises CoverageError where its records do not end
        where the hole does, Rewritten, and what reading raises; nothing was committed then.
        """
        hole = next(hole for hole in held.holes.ranges if batch.start in hole)
        write = SplitWriter({str(self._log_id): LogWriter(source, held.epoch, batch.start, link, self._warehouse)})
        pieces = source.plan(batch, cores=self._spark.sparkContext.defaultParallelism)
        splits = [PlannedSplit(str(self._log_id), batch, piece) for piece in pieces]
        reports = run_splits(self._spark, splits, write)
        try:
            proven = self._prove(reports, batch, hole)
        except LogtwinError as error:
            discard_files(self._warehouse, reports)
            raise error.at(self._log_id) from error
        discard_quarantined(self._warehouse, reports)
        self._on_step(FillStep.FILES)
        rows = _reaching_over(free, proven.ledger(time.time_ns() // 1000, BACKFILL))
        if rows and not self._commit(held, proven, rows):
            return None
        return Filled(
            range=proven.range,
            ranges=joined(row.range for row in rows),
            records=proven.records,
            bytes=sum(row.bytes for row in rows),
            link=proven.link,
        )

    def _prove(self, reports: Sequence[SplitReport], batch: OffsetRange, hole: OffsetRange) -> ProvenBatch:
        proven = prove_batch(reports, batch.start)
        if proven is None:
            raise ValueError(f"an empty batch: {batch}")
        if proven.range.end > hole.end:
            raise CoverageError(
                "a record of the source lies across the end of the hole",
                offset=hole.end,
                expected=f"a record that ends at {hole.end}, where the replica has the next one",
                found=f"one that ends at {proven.range.end}",
                hint="Nothing of it was committed. These are another log's files, or the master's log was rewritten "
                "since: check the path.",
            )
        return proven

    def _commit(self, held: Held, proven: ProvenBatch, rows: Sequence[LedgerRow]) -> bool:
        holes = self._table.fill(held, proven.files, rows)
        if holes is None:
            return False
        self._on_step(FillStep.COMMIT)
        self._settle(Held(held.snapshot, held.state, holes))
        self._on_step(FillStep.LEDGER)
        self._table.run_hooks()
        self._ledger.run_hooks()
        return True

    def _settle(self, held: Held) -> None:
        settle_holes(self._ledger, self._ledger_rows, self._table, held)


def _reaching_over(free: OffsetRange | None, rows: list[LedgerRow]) -> list[LedgerRow]:
    """`rows`, the last of which claims the ids behind it, too, where these are the free ones."""
    if free is None or not rows or rows[-1].end != free.start:
        return rows
    return [*rows[:-1], replace(rows[-1], end=free.end)]
