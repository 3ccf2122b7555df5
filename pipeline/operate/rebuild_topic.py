"""Rebuilds the segment files of a topic's partitions from the table (`pipeline.operate.rebuild`).

Records are put into new batches, because a row does not say which batch it came from. Consumers read the same records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.operate.rebuild import OnWritten, holed
from sinks.proof.proven_log import ProvenLog, check_proven, proven_log
from sinks.proof.stored import RowsInOrder
from sinks.values.continuity import written
from sinks.values.ledger_row import LedgerRow
from sources.kafka.format.columns import UNLOCATED_SCHEMA, canonical
from sources.kafka.rebuilt_partitions import DEFAULT_FILE_SIZE_BYTES, OWN, RebuiltPartition, folder_name
from sources.offsets import LogId, OffsetRange
from sources.rebuilt_folder import RebuiltFolder

_PIECE_BYTES: Final = 64 * 1024 * 1024
"""How much is read at once: if OPTIMIZE has mixed the files, the rows of a piece are sorted in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTopicLog:
    """The rebuilt files of a partition, the offsets of its log, and the ranges that the replica lacks."""

    log_id: LogId
    folder: str
    files: int
    records: int
    log: OffsetRange
    last_epoch: int | None
    left_out: tuple[OffsetRange, ...]

    def text(self, to: Path) -> str:
        made = f"{self.records:,} records in {self.files:,} file{'' if self.files == 1 else 's'} in {to / self.folder}"
        holes = "".join(f"; none in {hole}" for hole in self.left_out)
        epochs = "" if self.last_epoch is None else f"; leader epochs up to {self.last_epoch}"
        return f"{self.log_id}: {made}, the log from {self.log.start:,} to {self.log.end:,}{holes}{epochs}"


class TopicRebuild:
    """The rebuild of partitions, each in a folder of its own, all at one version of their table. Driver only.

    `with_epochs` is that of `sources.kafka.rebuilt_partitions`.
    """

    def __init__(
        self, spark: SparkSession, warehouse: str, log_ids: Sequence[LogId], *, with_epochs: bool = False
    ) -> None:
        """Raises ConfigurationError if a partition has nothing, ReplicaError if the tables contradict each other."""
        self._with_epochs = with_epochs
        first = proven_log(spark, warehouse, log_ids[0], to="rebuild")
        others = (proven_log(spark, warehouse, one, to="rebuild", version=first.version) for one in log_ids[1:])
        self._logs = [first, *others]

    @property
    def size_bytes(self) -> int:
        """How many bytes there are to write, as the ledger counts them."""
        return sum(row.bytes for one in self._logs for row in one.proven)

    def write(
        self, to: Path, file_size_bytes: int | None, *, zero_holes: bool, on_written: OnWritten = lambda _: None
    ) -> Sequence[RebuiltTopicLog]:
        """Make all of the files in the directory `to`, or none, as `CommitLogRebuild.write` does.

        A new file begins at `file_size_bytes`, by default Kafka's own.
        """
        size_bytes = DEFAULT_FILE_SIZE_BYTES if file_size_bytes is None else file_size_bytes
        for one in self._logs:
            if _missing(one) and not zero_holes:
                raise holed(one.log_id, _missing(one), "every record from the first one on", "leave the offsets out")
        with RebuiltFolder(to, OWN) as folder:
            made = [self._written(one, folder, size_bytes, on_written) for one in self._logs]
            folder.finish()
        return made

    def _written(
        self, one: ProvenLog, folder: RebuiltFolder, file_size_bytes: int, on_written: OnWritten
    ) -> RebuiltTopicLog:
        files = RebuiltPartition(folder, one.log_id, one.holes.front, file_size_bytes, with_epochs=self._with_epochs)
        count = 0
        for records, raw in _proven_rows(one):
            files.write(records)
            count += len(records)
            on_written(len(raw))
        files.finish(one.position, one.mark)
        return RebuiltTopicLog(
            log_id=one.log_id,
            folder=folder_name(one.log_id),
            files=files.files,
            records=count,
            log=OffsetRange(one.holes.front, one.position),
            last_epoch=files.last_epoch,
            left_out=_missing(one),
        )


def _missing(one: ProvenLog) -> tuple[OffsetRange, ...]:
    """The holes of the partition. What lies before the replica's beginning is none: a log may begin at any offset."""
    return one.holes.within(OffsetRange(one.holes.front, one.position))


def _proven_rows(one: ProvenLog) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """All rows, in order, with their bytes. Raises Divergent after a range that is not what was replicated."""
    for piece in _pieces(one.proven):
        covered = OffsetRange(piece[0].start, piece[-1].end)
        rows = RowsInOrder(one.rows(covered, UNLOCATED_SCHEMA.names))
        for row in piece:
            digest = hashlib.sha256()
            for records in rows.below(row.end):
                raw = canonical(records)
                digest.update(raw)
                yield records, raw
            check_proven(one.log_id, row, written(digest))


def _pieces(proven: Sequence[LedgerRow]) -> Iterator[list[LedgerRow]]:
    """Groups of adjoining ranges, each of about the size of a piece."""
    piece: list[LedgerRow] = []
    piece_bytes = 0
    for row in proven:
        if piece and (piece[-1].end != row.start or piece_bytes + row.bytes > _PIECE_BYTES):
            yield piece
            piece, piece_bytes = [], 0
        piece.append(row)
        piece_bytes += row.bytes
    if piece:
        yield piece
