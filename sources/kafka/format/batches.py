"""Decodes the answer to a fetch: checks batches, leaves out what is not to be read, and makes columns.

An answer holds whole batches as they lie in the log, and often a last one that is cut off. How far it leads depends on
where its batches end, not on their records: compaction, transaction markers and aborted transactions leave holes in the
offsets, and a batch keeps its place when it loses records, even all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sources.decoding.undecodable import as_damage, placed, up_to_damage
from sources.errors import CorruptRecord
from sources.kafka.format.aborted import Aborted, AbortedTransactions
from sources.kafka.format.batch_header import Batch, batch_at
from sources.kafka.format.compression import UNCOMPRESSED, decompress
from sources.kafka.format.control import is_abort
from sources.kafka.format.record_columns import record_columns
from sources.kafka.isolation import Isolation
from sources.master import Damage
from sources.offsets import Offset, OffsetRange

__all__ = ["Aborted", "BatchLimits", "DecodedBatches", "decode"]

_MAX_DATA_BYTES: Final = 2**30  # Arrow's binary columns count bytes in 32 bits


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most that is taken into memory: of one decompressed batch, and of all that are decoded at once."""

    max_batch_bytes: int = 256 * 1024 * 1024
    max_decompressed_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS: Final = BatchLimits()


@dataclass(frozen=True, slots=True)
class DecodedBatches:
    """The wanted records (`columns.UNLOCATED_SCHEMA`), in log order, and how far the answer led.

    Between the start of the wanted range and `reached` there is nothing else to read. `epoch` is the leader epoch
    there: that of the batch that ends at `reached` or, if a hole ends there, of the batch behind it; None without any
    batch.
    """

    records: pa.RecordBatch
    reached: Offset
    epoch: int | None


def decode(
    records: bytes | memoryview,
    wanted: OffsetRange,
    aborted: Sequence[Aborted],
    isolation: Isolation,
    limits: BatchLimits = DEFAULT_LIMITS,
) -> DecodedBatches:
    """Return the records of `wanted` in the answer `records` to a fetch at or before its start.

    `aborted` is what the answer lists. A cut-off last batch is ignored, and so is what begins behind `wanted`, of which
    only the beginning is checked. If more than `limits.max_decompressed_bytes` are decompressed, reading ends early,
    after a whole batch: ask again at `reached`.

    Raises CorruptRecord, ChecksumMismatch, naming the offset where the damaged batch begins; to get what lies before
    it, end `wanted` there. ValueError for more than 1 GiB.
    """
    view = memoryview(records).cast("B")
    if len(view) > _MAX_DATA_BYTES:
        raise ValueError(f"{len(view)} bytes at once; at most {_MAX_DATA_BYTES} can be decoded")
    answer = _Answer(wanted, aborted, isolation, limits)
    answer.take(view)
    return DecodedBatches(_between(answer.columns(), wanted), answer.reached, answer.epoch)


def damage_at(records: bytes | memoryview, wanted: OffsetRange, error: CorruptRecord) -> Damage:
    """Return the batch at or before the start of `wanted` that `decode` found damaged, as `error` says.

    It ends where the next sound batch begins. Raises `error` if none follows in the answer: the last batch of a log may
    still be being written.
    """
    view = memoryview(records).cast("B")
    at, damaged = 0, None
    while (batch := batch_at(view, at)) is not None:
        if damaged is None and batch.base_offset == error.offset:
            damaged = bytes(batch.whole)
        elif damaged is not None and _is_sound(batch, wanted.start):
            return Damage(OffsetRange(wanted.start, min(batch.base_offset, wanted.end)), memoryview(damaged), error)
        at += len(batch.whole)
    raise error


def _is_sound(batch: Batch, behind: Offset) -> bool:
    try:
        batch.check(Offset(behind + 1))
    except CorruptRecord:
        return False
    return True


class _Answer:
    """The batches of an answer to read, their records (`bodies`), and how far the answer leads."""

    def __init__(
        self, wanted: OffsetRange, aborted: Sequence[Aborted], isolation: Isolation, limits: BatchLimits
    ) -> None:
        self.batches: list[Batch] = []
        self.bodies: list[bytes | memoryview] = []
        self.reached = wanted.start
        self.epoch: int | None = None
        self._wanted = wanted
        self._transactions = AbortedTransactions(aborted)
        self._isolation = isolation
        self._limits = limits
        self._decompressed_bytes = 0

    def take(self, view: memoryview) -> None:
        """Take batch after batch, up to the first that is cut off or begins behind what is wanted."""
        at, before = 0, Offset(0)
        while self._decompressed_bytes <= self._limits.max_decompressed_bytes:
            batch = batch_at(view, at)
            if batch is None:
                return
            if batch.base_offset >= self._wanted.end:
                self._end_before(batch)
                return
            with as_damage(batch.base_offset):
                batch.check(before)
                self._take(batch)
            at, before = at + len(batch.whole), batch.end

    def columns(self) -> pa.RecordBatch:
        """Return the columns. Raises CorruptRecord that names the first damaged batch."""
        columns, sound, damage = up_to_damage(len(self.batches), self._columns)
        if damage is not None:
            raise placed(damage, self.batches[sound].base_offset)
        return columns

    def _columns(self, count: int) -> pa.RecordBatch:
        with as_damage(None):
            return record_columns(self.batches[:count], self.bodies[:count])

    def _take(self, batch: Batch) -> None:
        if not (self._is_aborted(batch) or batch.is_control or batch.end <= self._wanted.start):
            self.batches.append(batch)
            self.bodies.append(self._records(batch))
        if batch.end >= self.reached:
            self.reached, self.epoch = batch.end, batch.epoch

    def _end_before(self, batch: Batch) -> None:
        """Note that `batch` begins behind what is wanted; what is left of that is a hole."""
        if self.reached < self._wanted.end:
            self.reached, self.epoch = batch.base_offset, batch.epoch

    def _is_aborted(self, batch: Batch) -> bool:
        """Whether `batch` is of an aborted transaction. Call it for every batch in order: markers end transactions."""
        if self._isolation is not Isolation.READ_COMMITTED or not batch.has_producer:
            return False
        self._transactions.go_to(Offset(batch.end - 1))
        if batch.is_control and is_abort(self._records(batch), batch.base_offset):
            self._transactions.end(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._transactions

    def _records(self, batch: Batch) -> bytes | memoryview:
        if batch.compression == UNCOMPRESSED or not batch.record_count:
            return batch.stored
        body = decompress(batch.stored, batch.compression, self._limits.max_batch_bytes, batch.base_offset)
        self._decompressed_bytes += len(body)
        return body


def _between(records: pa.RecordBatch, wanted: OffsetRange) -> pa.RecordBatch:
    """Return the records in `wanted`; the first and the last batch may reach beyond it."""
    first, end = np.searchsorted(records.column("offset"), (wanted.start, wanted.end)).tolist()
    return records.slice(first, end - first)
