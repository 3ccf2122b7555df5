"""What a task does with its splits: read, write files, report. Runs in Spark's Python workers (`spark_jobs.run_tasks`).

A task gets planned splits, and returns a small report of each: the range covered, the files, their statistics, the
checksums of the master's bytes. Rows of the log never pass through the JVM.

The split that begins at the position is read from one record earlier, the link: this proves, on the very connection
that brings the batch, that the batch continues what is committed. That record is not written again.

An error travels in the report, so that it affects one log only; if a retry can help, the next batch asks again. What
was read before a place that is damaged or lost is written and reported, as is what was read before the time was up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa

from sinks.batch.continuity import Link, first_behind
from sinks.batch.handshake import Append, clip, decide
from sinks.batch.shared_file import SharedFile
from sinks.batch.split_files import Pending, SplitFiles
from sinks.batch.split_report import SplitReport
from sinks.tables import log_table
from sources.errors import BelowMinimum, LogtwinError, MasterSilent, across_processes, of_log
from sources.loss import leaves_what_is_before
from sources.master import Chunk, Damage, MasterLog, PlannedSplit, TimeIsUp
from sources.offsets import Offset, OffsetRange
from sources.splits import WORTH_A_TASK_BYTES

READ_AT_ONCE: Final = 8
"""How many small splits one task reads at once, at most: each waits for a master of its own."""


@dataclass(frozen=True, slots=True)
class SplitWriter:
    """The task function, with a LogWriter for each log id. Picklable."""

    logs: Mapping[str, LogWriter]

    def __call__(self, splits: Iterable[PlannedSplit]) -> Iterator[SplitReport]:
        """Read and write `splits`; yield a report of each. They are read side by side, and share a file."""
        given = list(splits)
        with across_processes(), self._shared() as shared, ThreadPoolExecutor(self._at_once(given)) as pool:
            reports = list(pool.map(lambda split: self._write(split, shared), given))
            shared.finish()
            for report in reports:
                yield report()

    def _write(self, split: PlannedSplit, shared: SharedFile) -> Pending:
        log = self.logs[split.log_id]
        if split.owned == split.batch:
            return log.write(split, shared)
        # If one of a log's several splits fails, none is committed, and a file that they share with others goes, too.
        report = log.report(split)
        return lambda: report

    def _shared(self) -> SharedFile:
        """A new file for the small splits: all logs of a job have the same table."""
        return next(iter(self.logs.values())).new_file()

    def _at_once(self, splits: Sequence[PlannedSplit]) -> int:
        """How many splits are read side by side: the memory that they hold adds up."""
        largest = max(self.logs[split.log_id].master.size_bytes(split.owned) or 0 for split in splits)
        return max(1, min(len(splits), READ_AT_ONCE, READ_AT_ONCE * WORTH_A_TASK_BYTES // max(largest, 1)))


@dataclass(frozen=True, slots=True)
class LogWriter:
    """What a task needs to read and write one log.

    `position`, and what `master` knows, are the driver's, so that the handshake decides the same. `link` is the last
    record below the position, None if there is none to compare. What a master has not sent after `patience_s` is left
    to a later batch, so that it does not hold up other logs.
    """

    master: MasterLog
    epoch: int
    position: Offset | None
    link: Link | None
    warehouse: str
    patience_s: float | None = None

    def new_file(self) -> SharedFile:
        table = log_table(self.master.log_id)
        return SharedFile(table, table.path(self.warehouse))

    def report(self, planned: PlannedSplit) -> SplitReport:
        """Like `write`, for a split that shares no file."""
        with self.new_file() as own:
            report = self.write(planned, own)
            own.finish()
            return report()

    def write(self, planned: PlannedSplit, shared: SharedFile) -> Pending:
        """Read and write a split of this log. An error is put in the report, so that it does not affect other logs.

        Raises OSError or ArrowException if the tables' storage fails.
        """
        split, batch = planned.owned, planned.batch
        try:
            return self._write(split, batch, shared)
        except (OSError, pa.ArrowException):
            raise  # the tables' storage failed, which all logs share
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
            problem = "reading or writing a part of the log failed"
            found = of_log(error, self.master.log_id, problem, offset=split.start)
        return partial(SplitReport, planned.log_id, split, batch, error=found)

    def _write(self, split: OffsetRange, batch: OffsetRange, shared: SharedFile) -> Pending:
        """Read and write the part of `split` above the position; the report is empty if no record starts in it."""
        nothing = partial(SplitReport, str(self.master.log_id), split, batch)
        decision = decide(self.position, batch)
        if not isinstance(decision, Append):
            return nothing
        owned = clip(split, decision.range)
        if owned.is_empty:
            return nothing
        is_first = owned.start == decision.range.start
        with SplitFiles(self.master, self.epoch, self.warehouse, owned, shared) as files:
            try:
                for piece in self._read(owned, is_first=is_first):
                    files.add(piece)
            except TimeIsUp as late:
                if is_first and files.reached == owned.start:
                    raise _nothing_came(self.master, owned, self.patience_s) from late
                return files.finish(split, batch, until=files.reached)
            except LogtwinError as error:
                if not leaves_what_is_before(error) or files.reached == owned.start:
                    raise
                return files.finish(split, batch, until=files.reached, error=error.at(self.master.log_id))
            return files.finish(split, batch)

    def _read(self, owned: OffsetRange, *, is_first: bool) -> Iterator[Chunk | Damage]:
        if self.link is not None and self.link.end == owned.start:
            return self._read_linked(owned, self.link)
        at_record = is_first or self.master.traits.cuts_at_records
        return self._hurried.read(owned, committed=self.position, boundary=at_record)

    def _read_linked(self, owned: OffsetRange, link: Link) -> Iterator[Chunk | Damage]:
        pieces = self._hurried.read(OffsetRange(link.start, owned.end), committed=self.position, boundary=True)
        try:
            first = first_behind(link, pieces, self.master.lengths)
        except BelowMinimum:  # the master's retention has deleted the record, so it cannot be compared
            return self._hurried.read(owned, committed=self.position, boundary=True)
        if first is None:
            raise link.broken("nothing")
        return chain([first], pieces)

    @property
    def _hurried(self) -> MasterLog:
        return self.master if self.patience_s is None else self.master.hurried(self.patience_s)


def _nothing_came(master: MasterLog, owned: OffsetRange, patience_s: float | None) -> MasterSilent:
    return MasterSilent(
        "no record came before the batch's deadline",
        log=master.log_id,
        offset=owned.start,
        expected=f"one within {patience_s or 0:g} s",
        found="none",
        hint=f"Check the way to {master.place}. It is given more time when it is tried again.",
    )
