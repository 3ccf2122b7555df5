"""Takes what a master sends of one split, piece by piece, and reports it. Runs in tasks.

The split that begins at the position is read from one record earlier, the link: this proves, on the very connection
that brings the batch, that the batch continues what is committed. That record is not written again.

An error is part of the report, so that it affects one log only; if a retry can help, the next batch asks again. What
was read before a damaged or lost range is written and reported, as is what was read before the time was up.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import pyarrow as pa

from sinks.batch.coverage import clip, new_part
from sinks.batch.proof import SplitReport
from sinks.batch.shared_file import SharedFile
from sinks.batch.split_files import Pending, SplitFiles
from sinks.tables import log_table
from sinks.values.continuity import Link, behind, nothing_of
from sources.errors import BelowMinimum, LogtwinError, MasterSilent, of_log
from sources.loss import leaves_what_is_before
from sources.master import Chunk, Damage, MasterLog, PlannedSplit, TimeIsUp
from sources.offsets import Offset, OffsetRange, packed
from sources.reading import Come, Ended, LogReader, WantedSplit


@packed
@dataclass(frozen=True, slots=True)
class LogWriter:
    """Everything that a task needs to read and write one log.

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

    @property
    def patient(self) -> MasterLog:
        """The log as it is read: with no more patience than this."""
        return self.master if self.patience_s is None else self.master.hurried(self.patience_s)


class Receiver:
    """Receives one split of a log, whose rows go into `shared`, or without it into a file of its own.

    Use as a context manager: leaving it by an exception removes every file of its own. `wanted` is the range that
    `log`'s reader has to read next for it, None if there is none.
    """

    def __init__(self, log: LogWriter, planned: PlannedSplit, shared: SharedFile | None) -> None:
        self.log = log
        self._planned = planned
        self._open = ExitStack()
        self._report: Pending = partial(SplitReport, planned.log_id, planned.owned, planned.batch)
        self._link: Link | None = None  # while its record is still to come
        self._own: SharedFile | None = None
        self._files: SplitFiles | None = None
        self._owned = planned.owned
        self._is_first = False
        self.wanted: WantedSplit | None = None
        try:
            self._begin(shared)
        except LogtwinError as error:
            self._fail(error)

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.__exit__(kind, error, at)

    def take(self, come: Chunk | Damage | Ended) -> None:
        """Take the next piece of `wanted`. An error goes into the report, and later pieces are ignored.

        Raises OSError or ArrowException if the tables' storage fails.
        """
        if self._files is None:
            return
        try:
            if isinstance(come, Ended):
                self._end(self._files, come.error)
            else:
                self._files.add(self._unlinked(come))
        except (OSError, pa.ArrowException):
            raise  # the tables' storage failed, which all logs share
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
            self._fail(error)

    def report(self) -> SplitReport:
        """The report of the split, once the shared file is complete."""
        return self._report()

    def _begin(self, shared: SharedFile | None) -> None:
        """Ask for the part of the split above the position; for nothing if it has none."""
        log, master = self.log, self.log.master
        new = new_part(self._planned.batch, log.position)
        owned = clip(self._planned.owned, new)
        if owned.is_empty:
            return
        self._owned, self._is_first = owned, owned.start == new.start
        if log.link is not None and log.link.end == owned.start:
            self._link = log.link
        self._want(owned if self._link is None else OffsetRange(self._link.start, owned.end))
        if shared is None:
            shared = self._own = self._open.enter_context(log.new_file())
        files = SplitFiles(master, log.epoch, log.warehouse, owned, shared)
        self._files = self._open.enter_context(files)

    def _want(self, read: OffsetRange) -> None:
        at_record = self._is_first or self.log.master.traits.cuts_at_records
        self.wanted = WantedSplit(self.log.patient, read, self.log.position, at_record)

    def _unlinked(self, piece: Chunk | Damage) -> Chunk | Damage:
        if self._link is None:
            return piece
        link, self._link = self._link, None
        return behind(link, piece, self.log.master.lengths)

    def _end(self, files: SplitFiles, error: Exception | None) -> None:
        """Finish the split: no more pieces come."""
        if self._link is not None:
            if isinstance(error, BelowMinimum):  # the master's retention has deleted the record: it cannot be compared
                self._link = None
                self._want(self._owned)
                return
            error = nothing_of(self._link, error)
        has_begun = files.reached > self._owned.start
        if isinstance(error, TimeIsUp) and (has_begun or not self._is_first):
            self._finish(files, until=files.reached)
        elif isinstance(error, TimeIsUp):
            raise _nothing_came(self.log, self._owned) from error
        elif isinstance(error, LogtwinError) and leaves_what_is_before(error) and has_begun:
            self._finish(files, until=files.reached, error=error.at(self._planned.log_id))
        elif error is not None:
            raise error
        else:
            self._finish(files)

    def _finish(self, files: SplitFiles, until: Offset | None = None, error: LogtwinError | None = None) -> None:
        self._report = files.finish(self._planned.owned, self._planned.batch, until=until, error=error)
        if self._own is not None:
            self._own.finish()
        self._open.close()
        self._files = self.wanted = None

    def _fail(self, error: Exception) -> None:
        planned = self._planned
        problem = "reading or writing a part of the log failed"
        found = of_log(error, planned.log_id, problem, offset=planned.owned.start)
        self._report = partial(SplitReport, planned.log_id, planned.owned, planned.batch, error=found)
        self._open.__exit__(type(error), error, error.__traceback__)
        self._files = self.wanted = None


def receive(reader: LogReader, receivers: Sequence[Receiver]) -> None:
    """Read what `receivers` want until none of them wants any more.

    Raises OSError or ArrowException if the tables' storage fails.
    """
    while wanting := [one for one in receivers if one.wanted is not None]:
        taking = set(range(len(wanting)))
        with closing(_come(reader, [one.wanted for one in wanting if one.wanted is not None])) as pieces:
            for number, come in pieces:
                wanting[number].take(come)
                if wanting[number].wanted is None and not isinstance(come, Ended):
                    taking.discard(number)  # it has failed
                    if not taking:
                        return


def _come(reader: LogReader, wanted: Sequence[WantedSplit]) -> Generator[Come]:
    """Yield what `reader` does; if it fails itself, end all splits that are left with its error."""
    left = dict.fromkeys(range(len(wanted)))
    failure: Exception = ValueError("the reader does not say how reading has ended")
    try:
        for number, come in reader.read(wanted):
            if isinstance(come, Ended):
                del left[number]
            yield number, come
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not the tables' storage
        failure = error
    yield from ((number, Ended(failure)) for number in left)


def _nothing_came(log: LogWriter, owned: OffsetRange) -> MasterSilent:
    return MasterSilent(
        "no record came before the batch's deadline",
        log=log.master.log_id,
        offset=owned.start,
        expected=f"one within {log.patience_s or 0:g} s",
        found="none",
        hint=f"Check the way to {log.master.address}. It is given more time when it is tried again.",
    )
