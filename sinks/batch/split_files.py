"""The files of one split: stretches of sound records, and one file for all bytes that are not. Runs in tasks.

A stretch, and its row of the ledger, ends where damage begins. If a batch could not be cut into splits, a stretch also
ends at half the usual length of a split: the next one's file is begun while the rest of this one is still being
written, so that one connection keeps several cores busy. The last stretch of such a split is short, so that two writers
share the rows that still wait when everything has been read. Short stretches go into the file that all splits of the
task share.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final

from sinks.batch.coverage import Covered, check_offsets, check_records, failure
from sinks.batch.proof import SplitReport, WrittenStretch
from sinks.batch.shared_file import HELD_BYTES, HeldRows, SharedFile, StretchFile
from sinks.books.quarantine import open_quarantine, quarantine_row
from sinks.delta.data_file import ColumnRange, DataFile
from sinks.delta.files import FileWriter
from sinks.tables import QUARANTINE
from sinks.values.continuity import Link, written
from sinks.values.incident import Action, Incident, cause_of
from sources.epochs import Epochs
from sources.errors import LogtwinError
from sources.loss import condition_of
from sources.master import Chunk, Damage, MasterLog
from sources.offsets import Offset, OffsetRange
from sources.reading import longest

CHUNKS_AHEAD: Final = 4
"""How many chunks may wait for their writers if a split has several files: what the file before still has to write
when the next begins.
"""

FILES_OF_A_SPLIT: Final = 2
"""If batches are not cut, a file takes this part of a split's usual size, 128 MiB of 256: two writers are at work only
around the end of a file, so ends should come often.
"""

LAST_FILE_SHARE: Final = 4
"""The last of several files has this part of a file's bytes, 32 MiB of 128: about as much as one writer lags behind."""


Pending = Callable[[], SplitReport]
"""A report that can be made once the shared file is complete."""


class SplitFiles:
    """The files that one split is written into. Use as a context manager: leaving it by an exception removes every file
    of its own, and leaves nothing of it in the `shared` file, which belongs to the log's table."""

    def __init__(self, master: MasterLog, epoch: int, warehouse: str, owned: OffsetRange, shared: SharedFile) -> None:
        self._log_id = master.log_id
        self._master = master
        self._shared = shared
        size_bytes = master.size_bytes(owned)
        self._is_large = (size_bytes or 0) > HELD_BYTES
        most_bytes = master.split_bytes if master.traits.cuts_batches else master.split_bytes // FILES_OF_A_SPLIT
        is_one_file = (size_bytes or owned.size) <= longest(most_bytes)
        self._file_bytes = longest(most_bytes) if is_one_file else most_bytes  # offsets may count records, not bytes
        self._last_file = owned.end if is_one_file else Offset(owned.end - self._file_bytes // LAST_FILE_SHARE)
        self._room = threading.Semaphore(1 if is_one_file else CHUNKS_AHEAD)
        self._epoch = epoch
        self._warehouse = warehouse
        self._files = ExitStack()
        self._stretch: _Stretch | None = None
        self._quarantine: FileWriter | None = None
        self._ended: list[_Stretch] = []  # their files may not be complete yet
        self._damaged: list[Incident] = []
        self.reached = owned.start

    def __enter__(self) -> SplitFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)

    def add(self, piece: Chunk | Damage) -> None:
        """Add the next piece of the split. Raises CoverageError, or the error of damage that has no loss condition."""
        self.reached = piece.covered.end
        if isinstance(piece, Damage):
            self._add_damage(piece)
        elif not piece.covered.is_empty:
            self._add_records(piece)

    def finish(
        self, split: OffsetRange, batch: OffsetRange, until: Offset | None = None, error: LogtwinError | None = None
    ) -> Pending:
        """Close the files and make them durable; rows without a file of their own go into the shared one."""
        self._end_stretch()
        quarantined = None if self._quarantine is None else self._quarantine.finish()
        ended = [(stretch, stretch.file.handed_over()) for stretch in self._ended]

        def report() -> SplitReport:
            written = tuple(stretch.written(file.result(timeout=0)) for stretch, file in ended)
            damaged = tuple(self._damaged)
            return SplitReport(str(self._log_id), split, batch, written, damaged, quarantined, error, until)

        return report

    def _add_records(self, chunk: Chunk) -> None:
        if self._stretch is not None and (
            self._stretch.bytes >= self._file_bytes or self._stretch.start < self._last_file <= chunk.covered.start
        ):
            self._end_stretch()
        if self._stretch is None:
            start = chunk.covered.start
            rows = HeldRows(self._log_id, self._epoch)
            file = StretchFile(self._shared, rows, start, self._files, self._room, large=self._is_large)
            self._stretch = _Stretch(start, file, self._master)
        self._stretch.add(chunk)

    def _add_damage(self, damage: Damage) -> None:
        condition = condition_of(damage.error)
        if condition is None:
            raise damage.error
        self._end_stretch()
        action = Action.SKIPPED if damage.raw is None else Action.QUARANTINED
        start, end = damage.covered.start, damage.covered.end
        piece = Incident(condition=condition, start=start, end=end, cause=cause_of(damage.error), action=action)
        self._damaged.append(piece)
        if damage.raw is not None:
            self._quarantine = self._quarantine or self._files.enter_context(
                open_quarantine(QUARANTINE.path(self._warehouse), start)
            )
            self._quarantine.write(quarantine_row(self._log_id, self._epoch, piece, damage.raw))

    def _end_stretch(self) -> None:
        if self._stretch is not None:
            self._stretch.file.end()
            self._ended.append(self._stretch)
            self._stretch = None


class _Stretch:
    """The sum of consecutive chunks. Checks that they join, and that their records lie where they claim to, and fill
    the stretch if every offset of the log has a record."""

    def __init__(self, start: Offset, file: StretchFile, master: MasterLog) -> None:
        self._lengths = master.lengths
        self._are_joined = not master.traits.has_free_offsets
        self.bytes = 0
        self.start = start
        self.file = file
        self._end = start
        self._records = 0
        self._last_record: OffsetRange | None = None
        self._last_raw = b""
        self._mark: int | None = None
        self._epochs: Epochs = ()
        self._digest = hashlib.sha256()
        self._times = ColumnRange()
        self._stored_at = file.table.stored_at

    def add(self, chunk: Chunk) -> None:
        self._check(chunk)
        lengths = self._lengths(chunk.records)
        self._check_bytes(chunk, int(lengths.sum()))
        self.file.write(chunk.records)
        self._digest.update(chunk.raw)
        self.bytes += len(chunk.raw)
        self._records += chunk.records.num_rows
        self._end, self._mark, self._epochs = chunk.covered.end, chunk.mark, chunk.epochs
        if self._are_joined:
            self._last_record = OffsetRange(chunk.records.column("offset")[-1].as_py(), self._end)
            self._last_raw = bytes(chunk.raw[len(chunk.raw) - int(lengths[-1]) :])
        self._times.add(chunk.records.column(self._stored_at))

    def written(self, file: DataFile | None) -> WrittenStretch:
        last = self._last_record or OffsetRange(Offset(self._end - 1), self._end)
        return WrittenStretch(
            covered=Covered(OffsetRange(self.start, self._end), last.start),
            checksum=written(self._digest),
            bytes=self.bytes,
            records=self._records,
            link=None if self._last_record is None else Link.of(last, self._last_raw),
            mark=self._mark,
            epochs=self._epochs,
            first_store_us=self._times.least,
            last_store_us=self._times.greatest,
            file=file,
        )

    def _check(self, chunk: Chunk) -> None:
        if chunk.covered.start != self._end:
            raise failure("the master's chunks do not join", self._end, self._end, chunk.covered.start)
        (check_records if self._are_joined else check_offsets)(chunk.records, chunk.covered)

    def _check_bytes(self, chunk: Chunk, expected: int) -> None:
        if len(chunk.raw) != expected:
            raise failure("a chunk holds other bytes than its records", self._end, f"{expected} bytes", len(chunk.raw))
