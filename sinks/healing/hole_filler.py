"""Fill holes of one log, batch by batch, while the stream of the log may go on.

    tasks write files and report -> coverage proven -> one commit -> ledger rows

A batch begins at a record boundary: at the edge of a hole, or where the batch before it ended. The last record of a
hole has to end exactly where the hole ends. That proves little: segment files of all brokers begin at the same offsets.
So the records before and after the hole, which the replica has, are compared with the source's. Damaged ranges stay
holes. A commit of files and holes does not conflict with the stream. If two commits fill one hole, Kernel refuses the
second, and then the records are in the table already.

If entries are lost, nobody knows the last id among them. The hole reaches up to the id of the entry behind it, which
the replica holds as one that takes only its own id. At a source that holds all entries, it begins right behind the last
lost one. The ids in between are free there: they are not read, but they belong to the hole.

If it is killed at any point, it can be run again: committed ranges are no holes any more, and the ledger rows of the
newest fill are in the holes' metadata until the next fill, which restores them first.

The holes' metadata has three things that the ledger has to follow, each written in the commit that made it true: the
ledger rows of the newest fill; the ranges that a repair took out, of this log or of another that had rows in the same
damaged file; and the hole at the front, whose rows the replica's own retention deleted. Every fill and repair of the
log first brings the ledger in line with them, and so does that repair or retention itself, whatever was killed before.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from sinks.batch.proof import BatchStep, ProvenBatch, SplitReport, no_step, prove_batch, raise_first_error
from sinks.batch.receiver import LogWriter
from sinks.batch.tasks import discard_files, discard_quarantined, run_splits
from sinks.books.ledger import Ledger, LedgerRows
from sinks.proof.stored import StoredLog, StoredRecord
from sinks.state.fence import refuse_repair
from sinks.state.holes import joined
from sinks.state.log_table import Held, LogTable
from sinks.tables import LEDGER, log_table
from sinks.values.continuity import Link
from sinks.values.ledger_row import BACKFILL, LedgerRow
from sinks.warehouse import absolute
from sources.errors import CoverageError, LogtwinError, Rewritten
from sources.master import MasterLog, PlannedSplit
from sources.offsets import LogId, Offset, OffsetRange

_FIRST_LOOK_BYTES = 1 << 16
SOURCE_HINT = "This is another log, or the master's log was rewritten since: check the path, or the address."


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledRange:
    """One batch of a fill: all of `range` was read, and the records of `ranges` were committed.

    `link` is the last record, `bytes` the size of the records in the master's log.
    """

    range: OffsetRange
    ranges: tuple[OffsetRange, ...]
    records: int
    bytes: int
    link: Link | None


class HoleFiller:
    """Fills holes of one log. Driver only. `on_step` is called after each step: for tests that kill it there.

    A fill acknowledges nothing: the master was promised more long ago. So it has a commit of its own, and not the way
    of a batch that moves its log (`sinks/batch/group.py`).
    """

    def __init__(
        self, spark: SparkSession, warehouse: str, log_id: LogId, on_step: Callable[[BatchStep], None] = no_step
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._log_id = log_id
        self._on_step = on_step
        self._table = LogTable(spark, log_table(log_id).path(self._warehouse), log_id)
        self._ledger = Ledger(spark, LEDGER.path(self._warehouse))
        self._ledger_rows = LedgerRows(spark, self._warehouse, log_id)

    def look(self) -> Held:
        """Read the log's state, and bring the ledger in line with its holes. Raises RepairPending, ReplicaError."""
        held = self._table.read()
        refuse_repair(self._log_id, held.state)
        self._settle(held)
        return held

    def fill(
        self, held: Held, batch: OffsetRange, source: MasterLog, link: Link | None, free: OffsetRange | None = None
    ) -> FilledRange | None:
        """Fill `batch`, which begins in a hole of `held` at a record, from `source`; None if the hole is gone by now.

        `link` is the record before the batch, if the source has it. `free` are the ids at the end of the hole that no
        entry has: they are claimed together with the ids before them. Raises CoverageError if the records do not end
        where the hole does, Rewritten, and whatever reading raises; then nothing was committed.
        """
        hole = next(hole for hole in held.holes.ranges if batch.start in hole)
        writer = LogWriter(source, held.epoch, batch.start, link, self._warehouse)
        pieces = source.plan(batch, cores=self._spark.sparkContext.defaultParallelism)
        splits = [PlannedSplit(str(self._log_id), batch, piece) for piece in pieces]
        reports = run_splits(self._spark, splits, {str(self._log_id): writer})
        try:
            proven = self._prove(reports, batch, hole)
        except LogtwinError as error:
            discard_files(self._warehouse, reports)
            raise error.at(self._log_id) from error
        discard_quarantined(self._warehouse, reports)
        self._on_step(BatchStep.FILES)
        rows = _reaching_over(free, proven.ledger(time.time_ns() // 1000, BACKFILL))
        if rows and not self._commit(held, proven, rows):
            return None
        return FilledRange(
            range=proven.range,
            ranges=joined(row.range for row in rows),
            records=proven.records,
            bytes=sum(row.bytes for row in rows),
            link=proven.link,
        )

    def _prove(self, reports: Sequence[SplitReport], batch: OffsetRange, hole: OffsetRange) -> ProvenBatch:
        raise_first_error(reports)
        proven = prove_batch(reports, batch.start)
        if proven is None:
            raise ValueError(f"an empty batch: {batch}")
        if proven.range.end > hole.end:
            raise CoverageError(
                "a record of the source lies across the end of the hole",
                offset=hole.end,
                expected=f"a record that ends at {hole.end}, where the replica has the next one",
                found=f"one that ends at {proven.range.end}",
                hint=f"Nothing of it was committed. {SOURCE_HINT}",
            )
        return proven

    def _commit(self, held: Held, proven: ProvenBatch, rows: Sequence[LedgerRow]) -> bool:
        holes = self._table.fill(held, proven.files, rows)
        if holes is None:
            return False
        self._on_step(BatchStep.COMMIT)
        self._settle(Held(held.snapshot, held.state, holes))
        self._on_step(BatchStep.LEDGER)
        self._table.run_hooks()
        self._ledger.run_hooks()
        return True

    def _settle(self, held: Held) -> None:
        settle_holes(self._ledger, self._ledger_rows, self._table, held)


def _reaching_over(free: OffsetRange | None, rows: list[LedgerRow]) -> list[LedgerRow]:
    """Extend the last of `rows` over the `free` ids if these follow it."""
    if free is None or not rows or rows[-1].end != free.start:
        return rows
    return [*rows[:-1], replace(rows[-1], end=free.end)]


def settle_holes(ledger: Ledger, rows: LedgerRows, table: LogTable, held: Held) -> None:
    """Write what the holes of `held` owe to the ledger, unless it is there. Raises ReplicaError."""
    position = None if held.state is None else table.position_of(held.state)
    if position is None:
        return
    ledger.append_fill(position, held.holes.fills, held.holes.ledger)
    if held.holes.taken_out:
        rows.take_out_of(lambda: table.read().holes.taken_out)
    if held.holes.front:
        rows.set_deleted(lambda: table.read().holes.forgotten, datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The records around a hole that were compared and found equal; `before` is the one before it.

    If there are none, only the offsets say that the source is the same log.
    """

    before: Link | None
    is_after_equal: bool

    @property
    def are_known(self) -> bool:
        return self.before is not None or self.is_after_equal


def compare_neighbours(
    stored: StoredLog, source: MasterLog, held: OffsetRange, hole: OffsetRange, committed: Offset
) -> Neighbours:
    """The records around `hole` that `source`, which holds `held`, has too.

    `committed` is the replica's position. Raises Rewritten if the source has different bytes for one of them, and
    whatever reading raises.
    """
    before = [record for record in (_before(stored, hole.start),) if record and held.holds(record.range)]
    after = [
        record for record in stored.records(OffsetRange(hole.end, Offset(hole.end + 1))) if held.holds(record.range)
    ]
    for record in (*before, *after):
        _check(source, record, committed)
    return Neighbours(Link.of(before[0].range, before[0].raw) if before else None, bool(after))


def _before(stored: StoredLog, end: Offset) -> StoredRecord | None:
    """The record that ends at `end`, searched for in growing steps, because its start is not known."""
    for size in _sizes(end):
        records = list(stored.records(OffsetRange(Offset(end - size), end)))
        if records:
            return records[-1] if records[-1].range.end == end else None
    return None


def _sizes(end: Offset) -> Iterator[int]:
    size = _FIRST_LOOK_BYTES
    while size < end:
        yield size
        size *= 4
    if end:
        yield end


def _check(source: MasterLog, record: StoredRecord, committed: Offset) -> None:
    found = b"".join(map(bytes, source.raw(record.range, committed=committed)))
    if found != record.raw:
        raise Rewritten(
            "the source has another record beside the hole than the replica",
            log=source.log_id,
            offset=record.range.start,
            expected=f"{record.range} with the bytes that were replicated",
            found="other bytes",
            hint=SOURCE_HINT,
        )


def free_at_end(hole: OffsetRange, source: MasterLog, held: OffsetRange) -> OffsetRange:
    """The ids at the end of `hole` that are free in `source`, which holds `held`.

    Empty unless the source's next entry is the one behind the hole. Raises as `source.boundary_after` does.
    """
    nothing = OffsetRange(hole.end, hole.end)
    if source.log_id.counts_bytes or not (held.start <= hole.end < held.end):
        return nothing
    if source.boundary_after(hole.end, held.end) != hole.end + 1:
        return nothing
    start = max(hole.start, held.start)
    ends = range(start, hole.end + 1)
    before = bisect_right(ends, hole.end, key=lambda at: source.boundary_after(Offset(at), held.end))
    return OffsetRange(Offset(start + max(before - 1, 0)), hole.end)
