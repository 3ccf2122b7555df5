"""The head of a record batch, format 2: the fields before its records.

====================  =====  =========================================================================
field                 bytes  meaning (Kafka documentation, "Record Batch"; DefaultRecordBatch.java)
====================  =====  =========================================================================
base offset           i64    offset of the first record when the batch was written; kept by compaction
length                i32    of the batch, from the next field on
leader epoch          i32    of the leader that wrote it; -1 if there was none
magic                 i8     2; at this place in every format
CRC                   u32    CRC-32C of everything from the next field on
attributes            i16    bits 0-2 compression, 3 log append time, 4 transactional, 5 control
last offset delta     i32    last offset - base offset; kept by compaction, so that batches join
base timestamp        i64    ms; timestamps of records count from it
max timestamp         i64    ms; with log append time the timestamp of every record
producer id           i64    -1 without idempotence
producer epoch        i16
base sequence         i32
record count          i32    of the remaining records; 0 for a batch kept only for its producer's state
====================  =====  =========================================================================

The CRC does not cover base offset, length and leader epoch, which the broker sets. A wrong length fails it anyway; a
wrong base offset is noticed if batches then overlap, and is a hole in offsets otherwise.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

import crc32c

from sources.errors import ChecksumMismatch, CorruptRecord
from sources.offsets import END, Offset, OffsetRange

_BEFORE_CRC_COVERS: Final = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # length
    "i"  # leader epoch
    "b"  # magic
    "I"  # CRC
)
_COVERED_BY_CRC: Final = struct.Struct(
    ">"
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # record count
)
_HEADER: Final = struct.Struct(_BEFORE_CRC_COVERS.format + _COVERED_BY_CRC.format.removeprefix(">"))
_LENGTH: Final = struct.Struct(">8xi")
_THROUGH_MAGIC_BYTES: Final = 17
MAGIC: Final = 2

NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
_NO_PRODUCER: Final = (-1, -1, -1)

_COMPRESSION = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

DAMAGED: Final = "The bytes changed on the broker's disk or on their way here: read it from another replica."


class Batch(NamedTuple):
    """A whole batch, unchecked until `check`: its fields in order, and all of its bytes as a view of the buffer."""

    base_offset: Offset
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    whole: memoryview

    @property
    def end(self) -> Offset:
        """Where the next batch, or a hole, begins."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def stored(self) -> memoryview:
        """Its records as stored, perhaps compressed."""
        return self.whole[_HEADER.size :]

    @property
    def epoch(self) -> int | None:
        return None if self.leader_epoch < 0 else self.leader_epoch

    @property
    def has_producer(self) -> bool:
        """Whether its producer is idempotent or transactional, and so has an id."""
        return self.producer_id >= 0

    @property
    def compression(self) -> int:
        return self.attributes & _COMPRESSION

    @property
    def has_log_append_time(self) -> bool:
        return self.attributes & _LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether it is one of Kafka's own markers (commit, abort), which consumers do not see."""
        return self.attributes & _CONTROL != 0

    def check(self, before: Offset) -> None:
        """Raise CorruptRecord unless it is sound and begins at or after `before`, the end of the batch before it."""
        if self.magic != MAGIC:
            raise self._corrupt("the batch has another format", f"magic 0 to {MAGIC}", f"magic {self.magic}")
        if len(self.whole) < _HEADER.size:
            raise self._corrupt(
                "the batch is shorter than its head", f"{_HEADER.size} bytes", f"{len(self.whole)} bytes"
            )
        crc = crc32c.crc32c(self.whole[_BEFORE_CRC_COVERS.size :])
        if crc != self.crc:
            raise ChecksumMismatch(
                "the batch does not have its CRC",
                offset=self.base_offset,
                expected=f"CRC-32C {self.crc:08x} as stored",
                found=f"CRC-32C {crc:08x}",
                hint=DAMAGED,
            )
        self._check_place(before)

    def _check_place(self, before: Offset) -> None:
        if self.base_offset < before:
            raise self._corrupt("the batch overlaps the one before it", f"{before} or more", self.base_offset)
        if not 0 <= self.last_offset_delta < END - self.base_offset:
            raise self._corrupt("the batch ends at no offset", "a last offset delta from 0 on", self.last_offset_delta)

    def _corrupt(self, problem: str, expected: str, found: object) -> CorruptRecord:
        return CorruptRecord(problem, offset=self.base_offset, expected=expected, found=found, hint=DAMAGED)


def batch_at(view: memoryview, at: int) -> Batch | None:
    """Return the batch that begins with byte `at` of `view`; None if not all of it is there.

    A batch that claims to be shorter than a head is returned with what there is of it.
    """
    left_bytes = len(view) - at
    if left_bytes < _THROUGH_MAGIC_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(view, at)
    size = _LENGTH.size + max(length, 0)
    if size > left_bytes:
        return None
    head = view[at : at + _HEADER.size]
    if len(head) < _HEADER.size:
        head = memoryview(bytes(head).ljust(_HEADER.size, b"\0"))
    return Batch._make((*_HEADER.unpack(head), view[at : at + size]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of an uncompressed batch of `count` records at offsets in `covered`, without a producer id."""

    covered: OffsetRange
    leader_epoch: int
    has_log_append_time: bool
    base_timestamp_ms: int
    max_timestamp_ms: int
    count: int

    def batch(self, records: memoryview) -> bytes:
        """Return the whole batch with these records: the inverse of `batch_at`."""
        of_records = _COVERED_BY_CRC.pack(
            _LOG_APPEND_TIME if self.has_log_append_time else 0,
            self.covered.size - 1,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            *_NO_PRODUCER,
            self.count,
        )
        length = _HEADER.size - _LENGTH.size + len(records)
        crc = crc32c.crc32c(records, crc32c.crc32c(of_records))
        before = _BEFORE_CRC_COVERS.pack(self.covered.start, length, self.leader_epoch, MAGIC, crc)
        return b"".join((before, of_records, records))
