"""Ranges of the replica that do not give the bytes that were replicated: what has to go with them. Driver only.

A range goes as whole rows of the ledger, because the checksum of a part could not be proven. A data file that cannot be
read goes as a whole, and with it every range that it may hold records of; where it may hold rows of another log
(`owners.py`), it is left to a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinks.healing.ledger_rows import LedgerRows
from sinks.healing.owners import offsets_of, others_in
from sinks.healing.rewrite import Rows, rows_of
from sinks.kernel import KernelTable, Snapshot, StoredFile
from sinks.ledger import LedgerRow
from sinks.proof.stored_log import StoredLog
from sinks.tables import log_table
from sources.errors import ReplicaError, StorageUnreachable
from sources.offsets import LogId, OffsetRange


@dataclass(frozen=True, slots=True)
class Damage:
    """What has to go: the records of `range`; those in `readable` files can be kept elsewhere."""

    range: OffsetRange
    readable: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class DamageSearch:
    """In the table log at version `on`, as far as one log is concerned."""

    log_id: LogId
    table: KernelTable
    on: Snapshot
    ledger: LedgerRows
    stored: StoredLog

    def damage_in(self, doubtful: OffsetRange) -> Damage | None:
        """What the rows of the ledger in `doubtful` come to; None where all are whole.

        Raises ReplicaError where a file that cannot be read may hold rows of another log.
        """
        rows: Sequence[LedgerRow] = [row for row in self.ledger.overlapping(doubtful) if not self.stored.is_whole(row)]
        if not rows:
            return None
        while True:
            span = OffsetRange(rows[0].start, rows[-1].end)
            files = self._files(span)
            lost = [file for file in files if not self._is_readable(file)]
            reach = [span, *map(self._owned, lost)]
            rows = self.ledger.overlapping(OffsetRange(min(one.start for one in reach), max(one.end for one in reach)))
            if (rows[0].start, rows[-1].end) == (span.start, span.end):
                return Damage(span, tuple(file for file in files if file not in lost))

    def unreadable(self, wanted: OffsetRange) -> list[OffsetRange]:
        """The offsets of files that cannot be read and may have rows in `wanted`. Raises ReplicaError as above."""
        return [self._owned(file) for file in self._files(wanted) if not self._is_readable(file)]

    def _files(self, wanted: OffsetRange) -> list[StoredFile]:
        return Rows.of_log(self.log_id, wanted).files(self.table, self.on)

    def _is_readable(self, file: StoredFile) -> bool:
        try:
            for _ in rows_of(self.table.path, log_table(self.log_id), file, self.log_id):
                pass
        except StorageUnreachable:  # nobody knows: a file that may be whole must not go
            raise
        except ReplicaError:
            return False
        return True

    def _owned(self, file: StoredFile) -> OffsetRange:
        """The offsets of a file that has to go, if it is the log's own."""
        offsets, others = offsets_of(file), others_in(file, self.on, self.log_id)
        if offsets is not None and not others:
            return offsets
        raise ReplicaError(
            f"the data file {self.table.path}/{file.path} cannot be read, and it may hold rows of other logs",
            log=self.log_id,
            offset=None if offsets is None else offsets.start,
            expected=f"a file with rows of {self.log_id} alone, which can be read again from its master",
            found=f"one that may have rows of {', '.join(map(str, others)) or 'any offset'}; {file.statistics()}",
            hint="Restore the file from a copy of the warehouse. Without one nobody can say what these logs have lost: "
            "replicate them anew, into another warehouse.",
        )
