"""The replica of a log at one version of its table, and what the ledger proves of it. Driver only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from sinks.books.ledger_rows import LedgerRows
from sinks.delta.kernel import KernelTable
from sinks.proof.proven import proven_ranges
from sinks.proof.stored import Part, parts, read
from sinks.state.fence import refuse_repair
from sinks.state.holes import Holes, joined
from sinks.state.position import LogTable
from sinks.tables import log_table
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import absolute
from sources.epochs import Epochs
from sources.errors import ConfigurationError, CoverageError
from sources.offsets import LogId, Offset, OffsetRange

_LOOKS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenLog:
    """A log up to `position`, where its master's history has `mark` and below which it has `epochs`
    (`sources.master.Known`).

    `proven` are the ranges of the ledger that fill, with the holes, everything below the position. `parts` are the
    files of `folder`, the table, at `version` that may hold the wanted rows.
    """

    log_id: LogId
    folder: str
    version: int
    epoch: int
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
        """The records that start in `wanted`, in order. Raises ReplicaError naming a file that cannot be read."""
        return read(self.folder, self.parts, self.log_id, wanted, columns)


def proven_log(
    spark: SparkSession,
    warehouse: str,
    log_id: LogId,
    *,
    to: str,
    version: int | None = None,
    wanted: OffsetRange | None = None,
) -> ProvenLog:
    """The log at the newest version of its table, or at an older one.

    `to` is the verb that asks. `wanted` is which rows are to be read: by default those below the position. Ledger and
    log table are read one after the other: if a repair ran in between, they are read again.
    Raises ConfigurationError if there is nothing of the log, RepairPending, and CoverageError if the tables contradict
    each other.
    """
    looks = Retrying(stop=stop_after_attempt(_LOOKS), retry=retry_if_exception_type(CoverageError), reraise=True)
    found = looks(_look, spark, warehouse, log_id, version, wanted)
    if found is None:
        raise nothing(log_id, warehouse, to=to)
    return found


def nothing(log_id: LogId, warehouse: str, *, to: str) -> ConfigurationError:
    return ConfigurationError(
        f"there is nothing to {to}",
        log=log_id,
        expected=f"records of the log in {log_table(log_id).path(absolute(warehouse))}",
        found="none",
        hint="Check warehouse and the id of the log.",
    )


def _look(
    spark: SparkSession, warehouse: str, log_id: LogId, version: int | None, wanted: OffsetRange | None
) -> ProvenLog | None:
    folder = log_table(log_id).path(absolute(warehouse))
    table = KernelTable(spark, folder)
    if table.snapshot() is None:
        return None
    log = LogTable(spark, folder, log_id)
    held = log.read() if version is None else log.read_at(version)
    refuse_repair(log_id, held.state)
    state = held.state
    if state is None or state.offset is None:
        return None
    below = OffsetRange(Offset(0), state.offset)
    ledger = LedgerRows(spark, warehouse, log_id).overlapping(below)
    return ProvenLog(
        log_id=log_id,
        folder=folder,
        version=held.snapshot.version,
        epoch=state.epoch,
        position=state.offset,
        mark=state.mark,
        epochs=state.epochs,
        holes=held.holes,
        proven=proven_ranges(log_id, ledger, state.ledger + held.holes.ledger, held.holes, state.offset),
        parts=parts(table, held.snapshot, log_id, below if wanted is None else wanted),
    )
