"""The files of one split: one for each stretch of sound records, one for all bytes that are none. Runs in tasks.

A stretch ends where damage begins: what a file, and its row of the ledger, covers has no hole. Of a split that no one
could cut it also ends where it is half as long as a split is elsewhere: the next file is begun while the rest of this
one is still being written, so that one connection keeps several cores busy with its writers. The last file of such a
split is a short one: what waits for a writer when all has been read waits for two.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.continuity import Lengths, Link, written
from sinks.coverage import Covered, check_records, failure
from sinks.files import DataFile, FileWriter, new_name
from sinks.quarantine import cause_of, open_quarantine, quarantine_row
from sinks.split_report import Damaged, SplitReport, Written
from sinks.tables import LOG, QUARANTINE, with_identity
from sources.loss import condition_of
from sources.master import Chunk, Damage, MasterLog
from sources.offsets import Offset, OffsetRange
from sources.splits import longest

CHUNKS_AHEAD: Final = 4
"""May wait for their writers where there are several: what the file before still has to write when the next begins."""

FILES_OF_A_SPLIT: Final = 2
"""Where batches are not cut each takes this part of what a split should be, 128 MiB of 256: two writers are at
work only around the end of a file, so ends should come often.
"""

LAST_FILE_SHARE: Final = 4
"""The last of several files has this part of a file's bytes, 32 MiB of 128: about as much as one writer is behind."""


class SplitFiles:
    """What one split is written into. Use as a context manager: leaving it by an exception removes every file."""

    def __init__(self, master: MasterLog, epoch: int, warehouse: str, owned: OffsetRange) -> None:
        self._log_id = master.log_id
        self._lengths = master.lengths
        most_bytes = master.split_bytes if master.cuts_batches else master.split_bytes // FILES_OF_A_SPLIT
        is_one_file = owned.size <= longest(most_bytes)
        self._file_bytes = owned.size if is_one_file else most_bytes
        self._last_file = owned.end if is_one_file else Offset(owned.end - self._file_bytes // LAST_FILE_SHARE)
        self._room = threading.Semaphore(1 if is_one_file else CHUNKS_AHEAD)
        self._epoch = epoch
        self._warehouse = warehouse
        self._files = ExitStack()
        self._stretch: _Stretch | None = None
        self._quarantine: FileWriter | None = None
        self._ended: list[tuple[_Stretch, Future[DataFile]]] = []  # whose files are not all complete yet
        self._damaged: list[Damaged] = []
        self.reached = owned.start

    def __enter__(self) -> SplitFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)

    def add(self, piece: Chunk | Damage) -> None:
        """The next piece of the split. Raises CoverageError; the error of damage that is no loss with a name."""
        self.reached = piece.covered.end
        if isinstance(piece, Damage):
            self._add_damage(piece)
        elif not piece.covered.is_empty:
            self._add_records(piece)

    def finish(self, split: OffsetRange, batch: OffsetRange) -> SplitReport:
        """Close the files and make them durable."""
        self._end_stretch()
        quarantined = None if self._quarantine is None else self._quarantine.finish()
        written = tuple(stretch.written(file.result()) for stretch, file in self._ended)
        return SplitReport(str(self._log_id), split, batch, written, tuple(self._damaged), quarantined)

    def _add_records(self, chunk: Chunk) -> None:
        if self._stretch is not None and (
            self._stretch.bytes >= self._file_bytes or self._stretch.start < self._last_file <= chunk.covered.start
        ):
            self._end_stretch()
        if self._stretch is None:
            start = chunk.covered.start
            file = FileWriter(LOG, LOG.path(self._warehouse), new_name(start), self._room)
            self._stretch = _Stretch(start, self._files.enter_context(file), self._lengths)
        self._stretch.add(chunk, with_identity(LOG, self._log_id, self._epoch, chunk.records))

    def _add_damage(self, damage: Damage) -> None:
        condition = condition_of(damage.error)
        if condition is None:
            raise damage.error
        self._end_stretch()
        piece = Damaged(damage.covered, condition, cause_of(damage.error), is_kept=damage.raw is not None)
        self._damaged.append(piece)
        if damage.raw is not None:
            self._quarantine_file(piece).write(quarantine_row(self._log_id, self._epoch, piece, damage.raw))

    def _quarantine_file(self, piece: Damaged) -> FileWriter:
        if self._quarantine is None:
            file = open_quarantine(QUARANTINE.path(self._warehouse), piece.range.start)
            self._quarantine = self._files.enter_context(file)
        return self._quarantine

    def _end_stretch(self) -> None:
        if self._stretch is not None:
            self._ended.append((self._stretch, self._stretch.finishing()))
            self._stretch = None


class _Stretch:
    """What consecutive chunks add up to. Checks that they join and that records fill what they claim to."""

    def __init__(self, start: Offset, file: FileWriter, lengths: Lengths) -> None:
        self._lengths = lengths
        self.bytes = 0
        self.start = start
        self._end = start
        self._file = file
        self._last_record = OffsetRange(start, start)
        self._last_raw = b""
        self._digest = hashlib.sha256()
        self._first_store: int | None = None
        self._last_store: int | None = None

    def add(self, chunk: Chunk, rows: pa.RecordBatch) -> None:
        self._check(chunk)
        lengths = self._lengths(chunk.records)
        self._check_bytes(chunk, int(lengths.sum()))
        self._file.write(rows)
        self._digest.update(chunk.raw)
        self.bytes += len(chunk.raw)
        self._end = chunk.covered.end
        self._last_record = OffsetRange(chunk.records.column("offset")[-1].as_py(), self._end)
        self._last_raw = bytes(chunk.raw[len(chunk.raw) - int(lengths[-1]) :])
        self._add_times(chunk.records.column("store_timestamp"))

    def finishing(self) -> Future[DataFile]:
        """Nothing more comes."""
        return self._file.finishing()

    def written(self, file: DataFile) -> Written:
        covered = Covered(OffsetRange(self.start, self._end), self._last_record.start)
        checksum, link = written(self._digest), Link.of(self._last_record, self._last_raw)
        return Written(covered, checksum, self.bytes, link, self._first_store, self._last_store, file)

    def _add_times(self, times: pa.Array) -> None:
        found = pc.min_max(times.cast(pa.int64())).as_py()
        if found["min"] is not None:
            self._first_store = min(value for value in (found["min"], self._first_store) if value is not None)
            self._last_store = max(value for value in (found["max"], self._last_store) if value is not None)

    def _check(self, chunk: Chunk) -> None:
        if chunk.covered.start != self._end:
            raise failure("the master's chunks do not join", self._end, self._end, chunk.covered.start)
        check_records(chunk.records, chunk.covered)

    def _check_bytes(self, chunk: Chunk, expected: int) -> None:
        if len(chunk.raw) != expected:
            raise failure("a chunk holds other bytes than its records", self._end, f"{expected} bytes", len(chunk.raw))
