"""What a task does with its splits: read, write files, report. Runs in Spark's Python workers (`spark_jobs.run_tasks`).

In comes what is planned of each split, out goes a small report of it, in JSON: what was covered, the files, their
statistics, the checksums of the master's bytes. Rows of the log never pass through the JVM.

The split that begins at the position is read from one record earlier, the link: on the very connection that brings the
batch the master proves that this continues what is committed. Of that record nothing is written.

An error that a retry can help is raised, so that Spark runs the task again; any other one travels in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from sinks.continuity import Link, first_behind
from sinks.handshake import Append, clip, decide
from sinks.split_files import SplitFiles
from sinks.split_report import SplitReport
from sources.errors import BelowMinimum, LogtwinError, ReplicaError
from sources.master import Chunk, Damage, MasterLog, PlannedSplit
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class SplitWriter:
    """The task function: everything it needs, picklable. `position` is the driver's, for the same handshake.

    `link` is the last record below the position, None where nothing can be compared with it.
    """

    master: MasterLog
    epoch: int
    position: Offset | None
    link: Link | None
    warehouse: str

    def __call__(self, splits: Iterable[PlannedSplit]) -> Iterator[str]:
        """A report of each split, as JSON."""
        for split in splits:
            yield self._report(split).as_json()

    def _report(self, planned: PlannedSplit) -> SplitReport:
        split, batch = planned.owned, planned.batch
        try:
            if planned.log_id != str(self.master.log_id):
                raise ReplicaError("a batch of another log", expected=self.master.log_id, found=planned.log_id)
            return self.write_split(split, batch)
        except LogtwinError as error:
            named = error.at(self.master.log_id)
            if named.is_transient:
                raise RuntimeError(named.token()) from error
            return SplitReport(split, batch, error=named)

    def write_split(self, split: OffsetRange, batch: OffsetRange) -> SplitReport:
        """Read and write what the position leaves of `split`; an empty report where no record starts in that."""
        decision = decide(self.position, batch)
        if not isinstance(decision, Append):
            return SplitReport(split, batch)
        owned = clip(split, decision.range)
        if owned.is_empty:
            return SplitReport(split, batch)
        with SplitFiles(self.master, self.epoch, self.warehouse, owned) as files:
            for piece in self._read(owned, is_first=owned.start == decision.range.start):
                files.add(piece)
            return files.finish(split, batch)

    def _read(self, owned: OffsetRange, *, is_first: bool) -> Iterator[Chunk | Damage]:
        if self.link is not None and self.link.end == owned.start:
            return self._read_linked(owned, self.link)
        at_record = is_first or self.master.cuts_at_records
        return self.master.read(owned, committed=self.position, boundary=at_record)

    def _read_linked(self, owned: OffsetRange, link: Link) -> Iterator[Chunk | Damage]:
        pieces = self.master.read(OffsetRange(link.start, owned.end), committed=self.position, boundary=True)
        try:
            return chain([first_behind(link, pieces, self.master.lengths)], pieces)
        except BelowMinimum:  # the master's retention took the record: there is nothing to compare with any more
            return self.master.read(owned, committed=self.position, boundary=True)
