"""The replica of a log at one version of its table, and what the ledger proves of it. Driver only.

At any version of the log table, its rows lie in the ranges of the ledger below the position; these and the holes fill
``[0, position)``. The ledger is another table. So it may be a moment older, and lack what the newest commits owe to it
(`sinks.state.log_state.LogState`, `sinks.state.holes.Holes`), or newer, and have what a backfill or the stream has
added since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from sinks.books.ledger import LedgerRows
from sinks.delta.kernel import KernelTable
from sinks.proof.completeness import check_filled
from sinks.proof.stored import Part, parts, read
from sinks.state.fence import refuse_repair
from sinks.state.holes import Holes, joined
from sinks.state.log_table import LogTable
from sinks.tables import log_table
from sinks.values.continuity import written
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import absolute
from sources.epochs import Epochs
from sources.errors import ConfigurationError, CoverageError, Divergent
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange


def proven_ranges(
    log_id: LogId, ledger: Iterable[LedgerRow], owed: Iterable[LedgerRow], holes: Holes, position: Offset
) -> list[LedgerRow]:
    """The rows of `ledger`, and of those `owed` to it, that match the table's `holes` and `position`, in order.

    Raises CoverageError if these rows and the holes do not fill everything below `position` exactly once.
    """
    found = [row for row in ledger if row.end <= position and not holes.within(row.range)]
    known = Holes(ranges=joined([*(row.range for row in found), *holes.ranges]))
    found += [row for row in owed if row.end <= position and not known.within(row.range)]
    found.sort(key=lambda row: row.range)
    check_filled(log_id, (row.range for row in found), holes, position)
    return found


class Proof:
    """Compares the checksums of ranges with a stream of bytes, in order."""

    def __init__(self, log_id: LogId, proven: Iterable[LedgerRow]) -> None:
        self._log_id = log_id
        self._rows = iter(proven)
        self._next()

    def take(self, data: memoryview) -> None:
        """Take the next bytes. Raises Divergent at the end of a range whose bytes are not what was replicated."""
        while data:
            mine = data[: self._missing_bytes]
            self._digest.update(mine)
            self._missing_bytes -= len(mine)
            data = data[len(mine) :]
            if not self._missing_bytes:
                self._check()
                self._next()

    def _next(self) -> None:
        self._row = next(self._rows, None)
        self._missing_bytes = 0 if self._row is None else self._row.range.size
        self._digest = hashlib.sha256()

    def _check(self) -> None:
        if self._row is None:
            raise ValueError("more bytes than the ranges have")
        check_proven(self._log_id, self._row, written(self._digest))


def check_proven(log_id: LogId, row: LedgerRow, found: str) -> None:
    """Raise Divergent unless `found` is the checksum of `row`."""
    if found != row.checksum:
        raise Divergent(
            f"the rows of {row.range} do not give the bytes that were replicated",
            log=log_id,
            offset=row.start,
            expected=row.checksum,
            found=found,
            hint=Condition.REPLICA_DAMAGED.hint,
        )


def check_joined(log_id: LogId, records: pa.RecordBatch, at: Offset) -> None:
    """Raise Divergent unless `records` follow each other from offset `at` on."""
    offsets = records.column("offset").to_numpy()
    sizes = records.column("size").to_numpy().astype(np.int64)
    expected = at + np.cumsum(sizes) - sizes
    wrong = np.flatnonzero(offsets != expected)
    if wrong.size:
        raise not_joined(log_id, Offset(int(expected[wrong[0]])), f"the row of {offsets[wrong[0]]}")


def not_joined(log_id: LogId, at: Offset, found: str) -> Divergent:
    """Return the error for a log table that lacks a row, or has one twice."""
    return Divergent(
        "a row of the log table is missing, or there twice",
        log=log_id,
        offset=at,
        expected="a record that starts here",
        found=found,
        hint=Condition.REPLICA_DAMAGED.hint,
    )


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
