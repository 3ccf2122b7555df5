"""Find what has to be taken out with rows that do not give the bytes that were replicated. Driver only.

A damaged range is taken out as whole rows of the ledger, because the checksum of a part could not be proven. A data
file that cannot be read is taken out as a whole, and may have rows of several logs (`owners.py`). The ledger of each
says what it loses: the ledger rows with offsets in the file for which the readable files hold fewer records than they
claim. A log whose ledger is whole without the file loses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from sinks.books.ledger import LedgerRows
from sinks.delta.data_file import may_hold
from sinks.delta.delta_log import StoredFile
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.proof.stored import StoredLog
from sinks.state.holes import TakenOut, joined
from sinks.state.log_table import Held
from sinks.state.rewrite import RowSelection, offsets_of, others_in, rows_of
from sinks.tables import LOG_ID, log_table
from sinks.values.ledger_row import LedgerRow
from sources.errors import RepairPending, ReplicaError, StorageUnreachable
from sources.offsets import LogId, OffsetRange

_ROWS_AT_ONCE: Final = 1000
_START, _END = attrgetter("start"), attrgetter("end")


@dataclass(frozen=True, slots=True)
class FoundDamage:
    """Ranges to take out: `taken` of the log itself, which may be empty, those of `others`, and the files in `lost`."""

    taken: TakenOut
    others: tuple[TakenOut, ...] = ()
    lost: tuple[StoredFile, ...] = ()

    @property
    def of_each(self) -> tuple[TakenOut, ...]:
        return (self.taken, *self.others)


@dataclass(frozen=True, slots=True)
class Books:
    """The state of one log, and its ledger."""

    held: Held
    ledger: LedgerRows


@dataclass(frozen=True, slots=True)
class DamageSearch:
    """A search for damage of the log `log_id` in the table log at version `on`.

    `books` gives the books of any log, as of that version.
    """

    log_id: LogId
    table: KernelTable
    on: Snapshot
    stored: StoredLog
    books: Callable[[LogId], Books]
    _can_be_read: dict[str, bool] = field(default_factory=dict)

    def damage_in(self, doubtful: OffsetRange) -> FoundDamage | None:
        """The damage in the rows of the ledger in `doubtful`; None if all are whole.

        Files that cannot be read come first; other damage is found once they are gone. Raises RepairPending if another
        log that has rows in one of them has a pending repair, ReplicaError if it is not known which offsets such a file
        has.
        """
        ledger = self.books(self.log_id).ledger
        rows = [row for row in ledger.overlapping(doubtful) if not self.stored.is_whole(row)]
        lost = [file for row in rows for file in self._lost(self.log_id, row.range)]
        if lost:
            return self._without(lost)
        return FoundDamage(self._taken(self.log_id, rows)) if rows else None

    def unreadable(self, wanted: OffsetRange) -> FoundDamage | None:
        """The damage by files that cannot be read and may have rows in `wanted`. Raises as `damage_in` does."""
        lost = self._lost(self.log_id, wanted)
        return self._without(lost) if lost else None

    def _without(self, lost: Sequence[StoredFile]) -> FoundDamage:
        """The damage by the `lost` files. A ledger row that is taken out may have records in further files that cannot
        be read: these are taken out as well, and so on."""
        gone: defaultdict[LogId, dict[OffsetRange, LedgerRow]] = defaultdict(dict)
        files: dict[str, StoredFile] = {}
        waiting = list(lost)
        while waiting:
            file = waiting.pop()
            if file.path in files:
                continue
            files[file.path] = file
            for log_id in self._logs(file):
                lacking = self._lacking(log_id, self._offsets(file), files)
                new = [row for row in lacking if row.range not in gone[log_id]]
                gone[log_id] |= {row.range: row for row in new}
                ranges = joined(row.range for row in new)
                waiting += [further for wanted in ranges for further in self._lost(log_id, wanted)]
        others = sorted(log_id for log_id, rows in gone.items() if rows and log_id != self.log_id)
        return FoundDamage(
            self._taken(self.log_id, gone[self.log_id].values()),
            tuple(self._taken(log_id, gone[log_id].values()) for log_id in others),
            tuple(files.values()),
        )

    def _taken(self, log_id: LogId, rows: Iterable[LedgerRow]) -> TakenOut:
        return TakenOut(log_id, self.books(log_id).held.epoch, joined(row.range for row in rows))

    def _logs(self, file: StoredFile) -> list[LogId]:
        """The logs that may have rows in a file that is taken out. Raises RepairPending."""
        others = others_in(file, self.on, self.log_id)
        in_repair = [log_id for log_id in others if self.books(log_id).held.is_in_repair]
        if in_repair:
            raise RepairPending(
                f"the data file {self.table.path}/{file.path} cannot be read, and may hold rows of logs in repair",
                log=self.log_id,
                expected="no pending repair of these logs",
                found=f"one that was begun and is not done, of {', '.join(map(str, in_repair))}",
                hint="Take it to its end first: "
                + "; ".join(f"logtwin repair --log {log_id}" for log_id in in_repair)
                + ". Where that cannot read the file either, restore the file from a copy of the warehouse.",
            )
        is_mine = may_hold(file.statistics(), LOG_ID.name, str(self.log_id))
        return [self.log_id, *others] if is_mine else others

    def _lacking(self, log_id: LogId, wanted: OffsetRange, lost: Collection[str]) -> list[LedgerRow]:
        """Find the rows of a log's ledger in `wanted` whose records are not all in the other readable files."""
        books = self.books(log_id)
        rows = [row for row in books.ledger.overlapping(wanted) if not books.held.holes.hold(row.range)]
        found: list[LedgerRow] = []
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[at : at + _ROWS_AT_ONCE]
            there = self._there(log_id, OffsetRange(some[0].start, some[-1].end), lost)
            starts, ends = (np.searchsorted(there, [edge(row) for row in some]) for edge in (_START, _END))
            found += [row for row, count in zip(some, ends - starts, strict=True) if count < row.records]
        return found

    def _there(self, log_id: LogId, wanted: OffsetRange, lost: Collection[str]) -> npt.NDArray[np.int64]:
        """The offsets of a log's records in `wanted`, in order."""
        rows = RowSelection.of_log(log_id, wanted)
        files = [file for file in rows.files(self.table, self.on) if file.path not in lost]
        found = [offsets for file in files for offsets in self._offsets_of(file, log_id, rows)]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _offsets_of(self, file: StoredFile, log_id: LogId, rows: RowSelection) -> list[npt.NDArray[np.int64]]:
        """The offsets of the wanted records; empty if the file cannot be read. Raises StorageUnreachable."""
        try:
            batches = rows_of(self.table.path, log_table(log_id), file, log_id, rows.columns)
            return [batch.filter(rows.condition).column("offset").to_numpy() for batch in batches]
        except StorageUnreachable:
            raise
        except ReplicaError:
            return []

    def _lost(self, log_id: LogId, wanted: OffsetRange) -> list[StoredFile]:
        files = RowSelection.of_log(log_id, wanted).files(self.table, self.on)
        return [file for file in files if not self._is_readable(file)]

    def _is_readable(self, file: StoredFile) -> bool:
        if file.path not in self._can_be_read:
            self._can_be_read[file.path] = self._reads(file)
        return self._can_be_read[file.path]

    def _reads(self, file: StoredFile) -> bool:
        try:
            for _ in rows_of(self.table.path, log_table(self.log_id), file, self.log_id):
                pass
        except StorageUnreachable:  # the file may be whole, so it must not be taken out
            raise
        except ReplicaError:
            return False
        return True

    def _offsets(self, file: StoredFile) -> OffsetRange:
        """The offsets of a file that is taken out. Raises ReplicaError if its statistics do not say."""
        offsets = offsets_of(file)
        if offsets is not None:
            return offsets
        others = others_in(file, self.on, self.log_id)
        raise ReplicaError(
            f"the data file {self.table.path}/{file.path} cannot be read, and which offsets it has is not known",
            log=self.log_id,
            expected="statistics that say which offsets a file has",
            found=f"{file.statistics()}; it may have rows of {', '.join(map(str, others)) or 'this log alone'}",
            hint="Restore the file from a copy of the warehouse. Without one nobody can say what these logs have lost: "
            "replicate them anew, into another warehouse.",
        )
