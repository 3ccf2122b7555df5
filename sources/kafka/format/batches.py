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

from sources.decoding.undecodable import TooCostly, as_damage, placed, up_to_damage
from sources.errors import CorruptRecord
from sources.kafka.cluster.settings import Isolation
from sources.kafka.format.batch_header import Batch, batch_at
from sources.kafka.format.columns import record_columns
from sources.kafka.format.compression import UNCOMPRESSED, decompress
from sources.kafka.format.old_messages import MAGICS, OldMessage, as_batches, cost_bytes, messages_of
from sources.kafka.format.transactions import Aborted, AbortedTransactions, is_abort
from sources.master import Damage
from sources.offsets import END, Offset, OffsetRange

__all__ = ["Aborted", "BatchLimits", "DecodedBatches", "damage_at", "decode_sound"]

_MAX_DATA_BYTES: Final = 2**30  # Arrow's binary columns count bytes in 32 bits
RECORD_COST_BYTES: Final = 192
HEADER_COST_BYTES: Final = 64
"""About what a record and a header take while they are decoded, besides their bytes."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most that is taken into memory: of one batch, and of all that are decoded at once.

    They count decompressed bytes. One batch may have as many records and headers as cost `max_cost_bytes` besides, and
    so may all that are decoded at once: an empty header takes 2 bytes in a log, which compress to next to nothing.
    """

    max_batch_bytes: int = 256 * 1024 * 1024
    max_decompressed_bytes: int = 64 * 1024 * 1024
    max_cost_bytes: int = 512 * 1024 * 1024

    @property
    def most_headers(self) -> int:
        return self.max_cost_bytes // HEADER_COST_BYTES


DEFAULT_LIMITS: Final = BatchLimits()


@dataclass(frozen=True, slots=True)
class DecodedBatches:
    """The wanted records (`columns.UNLOCATED_SCHEMA`), in log order, and how far the answer led.

    Between the start of the wanted range and `reached` there is nothing else to read. `epoch` is the leader epoch
    there: that of the batch that ends at `reached` or, if a hole ends there, of the batch behind it; None without any
    batch. `error` is what is wrong with the batch at `reached`, which begins with byte `damaged_at` of the answer.
    """

    records: pa.RecordBatch
    reached: Offset
    epoch: int | None
    error: CorruptRecord | None = None
    damaged_at: int = 0


def decode_sound(
    records: bytes | memoryview,
    wanted: OffsetRange,
    aborted: Sequence[Aborted],
    isolation: Isolation,
    limits: BatchLimits = DEFAULT_LIMITS,
    log_end: Offset = END,
) -> DecodedBatches:
    """Return the records of `wanted` in the answer `records` to a fetch at or before its start.

    `aborted` is what the answer lists, `log_end` where the log ends. A cut-off last batch is ignored, and so is what
    begins behind `wanted`, of which only the beginning is checked. Reading ends early, after a whole batch, if batches
    exceed `limits` together (ask again at `reached`), and before the first batch that is damaged, or exceeds them
    alone. An error names the offset at which that batch says it begins.

    Raises OutOfMemory if one batch takes more memory than there is; ValueError for more than 1 GiB.
    """
    view = memoryview(records).cast("B")
    if len(view) > _MAX_DATA_BYTES:
        raise ValueError(f"{len(view)} bytes at once; at most {_MAX_DATA_BYTES} can be decoded")
    answer = AnswerBatches(wanted, aborted, isolation, limits, log_end)
    answer.take(view)
    columns = answer.columns()
    return DecodedBatches(_between(columns, wanted), answer.reached, answer.epoch, answer.error, answer.damaged_at)


def damage_at(
    records: bytes | memoryview, wanted: OffsetRange, decoded: DecodedBatches, log_end: Offset = END
) -> Damage | None:
    """Return the damage at the start of `wanted`, where `decoded` ends with an error: all bytes up to a sound batch.

    It ends where that batch begins. None if none follows in the answer: nobody knows then where the damage ends.
    """
    if decoded.error is None:
        return None
    view = memoryview(records).cast("B")
    at = decoded.damaged_at
    while (batch := batch_at(view, at)) is not None:
        sound_from = _sound_from(batch, wanted.start, log_end) if at > decoded.damaged_at else None
        if sound_from is not None:
            covered = OffsetRange(wanted.start, min(sound_from, wanted.end))
            return Damage(covered, memoryview(bytes(view[decoded.damaged_at : at])), decoded.error)
        at += len(batch.whole)
    return None


def _sound_from(batch: Batch, behind: Offset, log_end: Offset) -> Offset | None:
    """Return where `batch` begins, behind that offset; None if it is not sound."""
    least = Offset(behind + 1)
    try:
        if batch.magic in MAGICS:
            return messages_of(batch.whole, least, DEFAULT_LIMITS.max_batch_bytes)[0].offset
        batch.check(least)
    except CorruptRecord:
        return None
    return batch.base_offset if batch.end <= log_end else None


@dataclass(frozen=True, slots=True)
class _Taken:
    """A batch to read, its records, and what was known before it: where it begins, and how far the answer led."""

    batch: Batch
    body: bytes | memoryview
    at: int
    reached: Offset
    epoch: int | None


class AnswerBatches:
    """The batches of an answer to read, and how far the answer leads: to `reached`, or to an `error` there."""

    def __init__(
        self,
        wanted: OffsetRange,
        aborted: Sequence[Aborted],
        isolation: Isolation,
        limits: BatchLimits,
        log_end: Offset,
    ) -> None:
        self.reached = wanted.start
        self.epoch: int | None = None
        self.error: CorruptRecord | None = None
        self.damaged_at = 0
        self._taken: list[_Taken] = []
        self._wanted = wanted
        self._transactions = AbortedTransactions(aborted)
        self._isolation = isolation
        self._limits = limits
        self._log_end = log_end
        self._decompressed_bytes = 0
        self._cost_bytes = 0
        self._at = 0
        self._before = Offset(0)

    def take(self, view: memoryview) -> None:
        """Take batch after batch, up to the first that is cut off, damaged, or begins behind what is wanted."""
        limits = self._limits
        while self._decompressed_bytes <= limits.max_decompressed_bytes and self._cost_bytes <= limits.max_cost_bytes:
            batch = batch_at(view, self._at)
            if batch is None:
                return
            try:
                with as_damage(batch.base_offset):
                    goes_on = self._take_old(view) if batch.magic in MAGICS else self._take_next(batch)
            except CorruptRecord as error:
                self._end_at_damage(batch_at(view, self._at) or batch, error)
                return
            if not goes_on:
                return

    @property
    def batches(self) -> list[Batch]:
        return [one.batch for one in self._taken]

    @property
    def bodies(self) -> list[bytes | memoryview]:
        """The records of each, decompressed."""
        return [one.body for one in self._taken]

    def columns(self) -> pa.RecordBatch:
        """Return the columns of what was taken, up to the first damaged batch, which becomes the error."""
        taken = self._taken
        first = taken[0].batch.base_offset if taken else None
        try:
            columns, sound, damage = up_to_damage(len(taken), self._columns, first)
        except TooCostly as cost:
            columns, sound, damage = self._columns(0), 0, _too_costly(taken[0].batch, cost)
        if sound < len(taken):
            cut = taken[sound]
            self.reached, self.epoch, self._at, self.error = cut.reached, cut.epoch, cut.at, None
            if damage is not None:
                self._end_at_damage(cut.batch, placed(damage, cut.batch.base_offset))
        return columns

    def _columns(self, count: int) -> pa.RecordBatch:
        with as_damage(None):
            return record_columns(self.batches[:count], self.bodies[:count], self._limits.most_headers)

    def _take_next(self, batch: Batch) -> bool:
        """Take a batch of format 2. Returns whether what follows it may be wanted, too."""
        if batch.base_offset >= self._wanted.end:
            self._check_place(batch.base_offset)
            self._end_before(batch.base_offset, batch.epoch)
            return False
        batch.check(self._before)
        self._check_place(batch.end)
        self._take(batch)
        self._at, self._before = self._at + len(batch.whole), batch.end
        return True

    def _take_old(self, view: memoryview) -> bool:
        """Take the messages of formats 0 and 1 that follow one another. Returns as `_take_next` does."""
        messages: list[OldMessage] = []
        try:
            behind = self._gather(view, messages)
        finally:
            for made in as_batches(messages):
                self._take(made)
        if behind is not None:
            self._end_before(behind, None)
        return behind is None

    def _gather(self, view: memoryview, messages: list[OldMessage]) -> Offset | None:
        """Add messages up to the first that is behind what is wanted, and return where that begins, if there is one."""
        while self._decompressed_bytes <= self._limits.max_decompressed_bytes:
            batch = batch_at(view, self._at)
            if batch is None or batch.magic not in MAGICS:
                return None
            found = messages_of(batch.whole, self._before, self._limits.max_batch_bytes)
            if found[0].offset >= self._wanted.end:
                self._check_place(found[0].offset)
                return found[0].offset
            end = Offset(found[-1].offset + 1)
            self._check_place(end)
            messages += found
            self._decompressed_bytes += sum(map(cost_bytes, found))
            self._at, self._before = self._at + len(batch.whole), end
        return None

    def _check_place(self, reached: Offset) -> None:
        """Check that the log has got to where a batch says it is. No checksum covers that of format 2."""
        if reached > self._log_end:
            raise CorruptRecord(
                "a batch claims offsets that the log has not reached",
                offset=self.reached,
                expected=f"batches up to the high watermark {self._log_end}",
                found=f"one up to {reached}",
            )

    def _take(self, batch: Batch) -> None:
        if not (self._is_aborted(batch) or batch.is_control or batch.end <= self._wanted.start):
            self._taken.append(_Taken(batch, self._records(batch), self._at, self.reached, self.epoch))
        if batch.end >= self.reached:
            self.reached, self.epoch = batch.end, batch.epoch

    def _end_before(self, behind: Offset, epoch: int | None) -> None:
        """Note that a batch begins `behind` what was read; up to there, or to the end of what is wanted, is a hole."""
        if self.reached < min(behind, self._wanted.end):
            self.reached, self.epoch = behind, epoch

    def _end_at_damage(self, batch: Batch, error: CorruptRecord) -> None:
        """Note that `batch` is damaged. Where it begins is believed, as of a sound one: no checksum covers that."""
        self.error, self.damaged_at = error, self._at
        if batch.magic not in MAGICS and batch.base_offset < self._log_end:
            self._end_before(batch.base_offset, batch.epoch)

    def _is_aborted(self, batch: Batch) -> bool:
        """Whether `batch` is of an aborted transaction. Call it for every batch in order: markers end transactions."""
        if self._isolation is not Isolation.READ_COMMITTED or not batch.has_producer:
            return False
        self._transactions.go_to(Offset(batch.end - 1))
        if batch.is_control and is_abort(self._records(batch), batch.base_offset):
            self._transactions.end(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._transactions

    def _records(self, batch: Batch) -> bytes | memoryview:
        most, cost_bytes = self._limits.max_cost_bytes, batch.record_count * RECORD_COST_BYTES
        if cost_bytes > most:
            raise _too_costly(
                batch, f"{batch.record_count} records at once; at most {most // RECORD_COST_BYTES} can be decoded"
            )
        self._cost_bytes += cost_bytes
        if batch.compression == UNCOMPRESSED or not batch.record_count:
            return batch.stored
        body = decompress(batch.stored, batch.compression, self._limits.max_batch_bytes, batch.base_offset)
        self._decompressed_bytes += len(body)
        return body


def _too_costly(batch: Batch, found: object) -> CorruptRecord:
    return CorruptRecord(
        "the batch takes more memory than a batch may",
        offset=batch.base_offset,
        expected="a number of records and headers that producers send",
        found=found,
        hint="The CRC of the batch is right: look at its producer. With on_loss = record its bytes go to quarantine.",
    )


def _between(records: pa.RecordBatch, wanted: OffsetRange) -> pa.RecordBatch:
    """Return the records in `wanted`; the first and the last batch may reach beyond it."""
    first, end = np.searchsorted(records.column("offset"), (wanted.start, wanted.end)).tolist()
    return records.slice(first, end - first)
