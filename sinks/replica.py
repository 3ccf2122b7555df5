"""The replica of one log: what `foreachBatch` calls for each batch of ranges.

    handshake -> tasks write files and report -> coverage proven -> one commit -> acknowledge -> ledger -> hooks

The order is the promise. Nothing is visible before the coverage is proven; nothing is acknowledged that is not
committed and, on a local disk, synced; the ledger follows the acknowledgement. After a crash at any point a new
Replica goes on at the table's position, and there is exactly one copy of everything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from sinks.coverage import prove
from sinks.files import discard
from sinks.handshake import Replay, decide
from sinks.ledger import Ledger, LedgerRow
from sinks.position import Held, LogState, LogTable, Writer
from sinks.tables import LEDGER, LOG, spark_schema
from sinks.tasks import REPORT_SCHEMA, SplitWriter, Written, unpack
from sinks.warehouse import absolute, ensure_tables
from sources.errors import CoverageError, LogtwinError, ReplicaError, find_error
from sources.master import RANGES_SCHEMA, MasterLog, Session
from sources.offsets import Offset, OffsetRange

_log = logging.getLogger(__name__)


class Step(Enum):
    """What a batch has just done, in order. A replay does ACKNOWLEDGE alone."""

    FILES = "files"
    COMMIT = "commit"
    ACKNOWLEDGE = "acknowledge"
    LEDGER = "ledger"


def _no_step(step: Step) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the last batch did. `durations_s`: seconds up to each step from the one before."""

    range: OffsetRange
    records: int
    bytes: int
    is_overlap: bool
    durations_s: dict[Step, float] = field(default_factory=dict)


class Replica:
    """One log's replica, owned by one run. Driver only; Spark calls it for one batch after the other.

    `on_step` is called after each step: progress, and the tests' way to die there.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        master: MasterLog,
        session: Session,
        writer: Writer | None = None,
        on_step: Callable[[Step], None] = _no_step,
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._master = master
        self._session = session
        self._writer = writer or Writer.of_this_process()
        self._on_step = on_step
        self._log_path = LOG.path(self._warehouse)
        self._table = LogTable(spark, self._log_path, master.log_id)
        self._ledger = Ledger(spark, LEDGER.path(self._warehouse))
        self._state: LogState | None = None
        self._received: Offset | None = None
        self.last: BatchResult | None = None

    def open(self) -> Offset | None:
        """Make the tables, take the log, restore the ledger. Returns the position, None of a fresh replica.

        Opened again, it goes on where it stands and takes nothing back from a run that started later.
        Raises ConfigurationError (a table that is not ours), ReplicaError, TakenOver.
        """
        ensure_tables(self._spark, self._warehouse)
        state = self._table.claim(self._writer) if self._state is None else self._table.held_by(self._writer)
        self._received = state.offset
        self._state = state
        if self._append_ledger(state):
            _log.info("%s: restored the ledger rows of the newest commit", self._master.log_id)
        self._run_hooks()
        return state.offset

    def check_ownership(self) -> None:
        """Look whether this run still owns the log: one look at the table, never while a batch is under way.

        Raises TakenOver where a run that started later has claimed it, ReplicaError where the table does not tell.
        """
        self._table.held_by(self._writer)

    def position(self) -> Offset | None:
        """Up to where this run has committed, or found committed when it opened."""
        return self._opened().offset

    def received(self) -> Offset | None:
        """Up to where the tasks have read and the coverage is proven; asked after `position`, never below that."""
        self._opened()
        return self._received

    def newest_stored_us(self) -> int | None:
        """`LogState.newest_stored_us` of what is committed."""
        return self._opened().newest_stored_us

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Bring one batch of ranges (RANGES_SCHEMA) into the table. For `foreachBatch`.

        Raises LogtwinError with the token in its notes: through py4j only the text of the traceback arrives.
        """
        try:
            self._apply(batch)
        except LogtwinError as error:
            named = error.at(self._master.log_id)
            named.add_note(named.token())
            raise named from error

    def _apply(self, batch: DataFrame) -> None:
        mine = self._opened()
        held = self._table.read()
        self._table.check(held, mine)
        clock = _Clock()
        with self._session.reading():
            reports = self._run_tasks(batch, mine)
        try:
            proven = _prove(reports, mine.offset)
        except LogtwinError:
            discard(self._log_path, [row["name"] for row in reports if row["name"]])
            raise
        if proven is None:
            self._acknowledge_again(mine.offset)
            return
        self._received = proven.range.end
        self._step(Step.FILES, clock)
        state = self._commit(held, mine, proven)
        self._step(Step.COMMIT, clock)
        self._session.acknowledge(proven.range.end)
        self._step(Step.ACKNOWLEDGE, clock)
        self._append_ledger(state)
        self._step(Step.LEDGER, clock)
        self._run_hooks()
        self.last = BatchResult(proven.range, proven.records, proven.range.size, proven.is_overlap, clock.durations_s)

    def _run_tasks(self, batch: DataFrame, mine: LogState) -> list[Row]:
        """One Spark job: every split read, written and reported. Raises what a task raised, as what it was."""
        write = SplitWriter(self._master, mine.epoch, mine.offset, self._log_path)
        try:
            frame = batch.select(*RANGES_SCHEMA.names)
            return frame.mapInArrow(write, spark_schema(REPORT_SCHEMA)).collect()
        except (PySparkException, Py4JError) as error:
            raise self._job_failure(error) from error

    def _job_failure(self, error: Exception) -> LogtwinError:
        return find_error(str(error)) or ReplicaError(
            "the Spark job that writes the batch failed",
            log=self._master.log_id,
            offset=self._opened().offset,
            found=_last_line(str(error)),
            hint="Nothing was committed; the batch is done again at the next start.",
        )

    def _commit(self, held: Held, mine: LogState, proven: _Proven) -> LogState:
        """The one commit of the batch: files, transaction version, position."""
        now_us = time.time_ns() // 1000
        rows = [_ledger_row(piece, now_us) for piece in proven.written]
        state = mine.moved_to(proven.range.end, first=proven.range.start, ledger=rows)
        self._table.commit(held, state, [piece.file for piece in proven.written])
        self._state = state
        return state

    def _acknowledge_again(self, position: Offset | None) -> None:
        """A replay: the promise may have been lost with the job that made it."""
        if position is None:
            return
        self._session.acknowledge(position)
        self._on_step(Step.ACKNOWLEDGE)
        self.last = BatchResult(OffsetRange(position, position), 0, 0, is_overlap=False)

    def _append_ledger(self, state: LogState) -> bool:
        position = self._table.position_of(state)
        return position is not None and self._ledger.append(position, state.ledger)

    def _run_hooks(self) -> None:
        self._table.run_hooks()
        self._ledger.run_hooks()

    def _step(self, step: Step, clock: _Clock) -> None:
        clock.lap(step)
        self._on_step(step)

    def _opened(self) -> LogState:
        if self._state is None:
            raise ReplicaError("the replica is not open", log=self._master.log_id, hint="Call open() first.")
        return self._state


class _Clock:
    """Seconds that each step took."""

    def __init__(self) -> None:
        self.durations_s: dict[Step, float] = {}
        self._since = time.monotonic()

    def lap(self, step: Step) -> None:
        now = time.monotonic()
        self.durations_s[step] = now - self._since
        self._since = now


@dataclass(frozen=True, slots=True)
class _Proven:
    """What is about to be committed: the pieces join to exactly `range`."""

    range: OffsetRange
    is_overlap: bool
    written: Sequence[Written]

    @property
    def records(self) -> int:
        return sum(piece.file.records for piece in self.written)


def _prove(reports: Sequence[Row], position: Offset | None) -> _Proven | None:
    """The reports of one batch, checked; None where nothing of it is new. Raises a task's error, Gap, CoverageError."""
    if not reports:
        return None
    in_order = sorted(reports, key=lambda row: row["split_start"])
    written = [piece for piece in (unpack(row.asDict()) for row in in_order) if piece is not None]
    decision = decide(position, _one_batch(in_order))
    if isinstance(decision, Replay):
        return None
    covered = prove(decision.range, [piece.covered for piece in written])
    return _Proven(covered, decision.is_overlap, written)


def _last_line(trace: str) -> str:
    """What a traceback, of Python or Java, comes to: its last line that is not indented."""
    lines = [line for line in trace.splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1] if lines else trace


def _one_batch(reports: Sequence[Row]) -> OffsetRange:
    """The batch that all splits say they belong to."""
    found = {OffsetRange(row["batch_start"], row["batch_end"]) for row in reports}
    if len(found) != 1:
        ranges = ", ".join(str(batch) for batch in sorted(found))
        raise CoverageError("splits of several batches in one", expected="splits of one batch", found=ranges)
    return found.pop()


def _ledger_row(piece: Written, committed_at_us: int) -> LedgerRow:
    return LedgerRow(
        start=piece.covered.range.start,
        end=piece.covered.range.end,
        records=piece.file.records,
        bytes=piece.covered.range.size,
        checksum=piece.checksum,
        first_store_timestamp=piece.first_store_us,
        last_store_timestamp=piece.last_store_us,
        committed_at=committed_at_us,
    )
