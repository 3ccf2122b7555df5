"""What ``logtwin rebuild`` reads: the replica of a log at one version of its table, and what the ledger proves.

Each range of the ledger is compared with its checksum while it is written, and the files are moved into place only
after the last. So either exactly what the master had arrives, or nothing. The kind of master decides which files these
are: `pipeline.operate.rebuild_commit_log`, `pipeline.operate.rebuild_topic`; `pipeline.operate.rebuild_verb` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.books.ledger_row import LedgerRow
from sinks.delta.kernel import KernelTable
from sinks.healing.ledger_rows import LedgerRows
from sinks.proof.proven import proven_ranges
from sinks.proof.stored import Part, parts, read
from sinks.state.holes import Holes, joined
from sinks.state.position import Held, LogTable
from sinks.tables import log_table
from sinks.warehouse import absolute
from sources.epochs import Epochs
from sources.errors import ConfigurationError, ReplicaError
from sources.offsets import LogId, Offset, OffsetRange

_HOLES_SHOWN: Final = 20

OnWritten = Callable[[int], None]
"""Receives the number of bytes just written, as `Rebuild.size_bytes` counts them."""


class RebuiltLog(Protocol):
    """The files that were made from one log."""

    def text(self, to: Path) -> str:
        """A line of text for a person; `to` is the directory that it was written to."""


class Rebuild(Protocol):
    """The logs that are rebuilt together, all at one version of their table. Driver only."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are to write; holes do not count."""

    def write(
        self, to: Path, file_size_bytes: int | None, *, zero_holes: bool, on_written: OnWritten
    ) -> Sequence[RebuiltLog]:
        """Make all of the files in the directory `to`, or none. It must be empty, or not exist.

        Raises ReplicaError (holes, unless `zero_holes`; rows that are not what was replicated), ConfigurationError,
        CorruptRecord.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The replica of a log at one version of its table. Driver only.

    It ends at `position`; there its master's history has `mark`, and below it `epochs` (`sources.master.Known`).
    `proven` are the ranges of the ledger, which fill with the holes everything below the position. `version` is that of
    the table in `folder`.
    """

    log_id: LogId
    folder: str
    version: int
    position: Offset
    mark: int | None
    epochs: Epochs
    holes: Holes
    proven: Sequence[LedgerRow]
    parts: Sequence[Part]

    @property
    def stretches(self) -> tuple[OffsetRange, ...]:
        """The parts of the log between its holes."""
        return joined(row.range for row in self.proven)

    def rows(self, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records that start in `wanted`, in order. Raises ReplicaError, which names a file that cannot be read."""
        return read(self.folder, self.parts, self.log_id, wanted, columns)


def stored(spark: SparkSession, warehouse: str, log_id: LogId, version: int | None = None) -> Stored:
    """The replica of a log at the newest version of its table, or at an older one.

    Raises ConfigurationError if there is nothing of the log, ReplicaError if the tables contradict each other.
    """
    folder = log_table(log_id).path(absolute(warehouse))
    table = KernelTable(spark, folder)
    if table.snapshot() is None:
        raise nothing(log_id, folder)
    log = LogTable(spark, folder, log_id)
    held = log.read() if version is None else log.read_at(version)
    log.refuse_repair(held.state)
    if held.state is None or held.state.offset is None:
        raise nothing(log_id, folder)
    below = OffsetRange(Offset(0), held.state.offset)
    return Stored(
        log_id=log_id,
        folder=folder,
        version=held.snapshot.version,
        position=held.state.offset,
        mark=held.state.mark,
        epochs=held.state.epochs,
        holes=held.holes,
        proven=_proven(spark, warehouse, log_id, held, below),
        parts=parts(table, held.snapshot, log_id, below),
    )


def _proven(spark: SparkSession, warehouse: str, log_id: LogId, held: Held, below: OffsetRange) -> list[LedgerRow]:
    ledger = LedgerRows(spark, warehouse, log_id).overlapping(below)
    owed = held.holes.ledger if held.state is None else held.state.ledger + held.holes.ledger
    return proven_ranges(log_id, ledger, owed, held.holes, below.end)


def nothing(log_id: LogId, path: str) -> ConfigurationError:
    """The error that the table at `path` has nothing of the log."""
    return ConfigurationError(
        "there is nothing to rebuild",
        log=log_id,
        expected=f"records of the log in {path}",
        found="none",
        hint="Check warehouse and the id of the log.",
    )


def holed(log_id: LogId, missing: Sequence[OffsetRange], expected: str, with_zero_holes: str) -> ReplicaError:
    """The error that the files would lack the ranges `missing`; `with_zero_holes` says what that option does."""
    shown = ", ".join(map(str, missing[:_HOLES_SHOWN]))
    more = f" and {len(missing) - _HOLES_SHOWN:,} more" if len(missing) > _HOLES_SHOWN else ""
    return ReplicaError(
        "the files would have holes",
        log=log_id,
        offset=missing[0].start,
        expected=expected,
        found=f"no records in {shown}{more}",
        hint=f"Fill them with logtwin backfill, or {with_zero_holes} with --zero-holes.",
    )
