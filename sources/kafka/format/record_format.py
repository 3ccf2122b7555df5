"""Decodes the records of many batches of format 2 at once: where each field of each record is, with all checks done.

==================  =========  =====================================================================
field               bytes      meaning (Kafka documentation, "Record"; DefaultRecord.java)
==================  =========  =====================================================================
length              varint     of the record, from the next field on
attributes          i8         not used
timestamp delta     varint     ms from the batch's base timestamp
offset delta        varint     from the batch's base offset; compaction leaves gaps
key                 varint+n   below 0: null
value               varint+n   below 0: null, a tombstone
headers             varint     how many
  header key        varint+n   UTF-8
  header value      varint+n   below 0: null
==================  =========  =====================================================================

A varint is a zigzag number, 7 bits per byte, the lowest first, all but its last byte with the top bit set. Records are
found by hopping from length to length, one loop step each, and so are the fields of headers; everything else works on
whole columns. The CRC of the batches was correct, so whatever is wrong here was written that way.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sources.decoding.columns import Bytes, Flags, Ints
from sources.decoding.undecodable import TooCostly
from sources.errors import CorruptRecord
from sources.kafka.format.batch_header import Batch
from sources.offsets import Offset

MAX_VARINT_BYTES: Final = 10
_MIN_RECORD_BYTES: Final = 7
_MIN_HEADER_BYTES: Final = 2

_ATTRIBUTES_BYTES: Final = 1
WRITTEN_SO: Final = "The CRC of the batch is right: the producer, or the broker that rewrote it, wrote it like this."


@dataclass(frozen=True, slots=True)
class Spans:
    """Fields of variable size as indexes into the buffer, [starts, ends). Empty if the field is null."""

    starts: Ints
    ends: Ints
    is_present: Flags


@dataclass(frozen=True, slots=True)
class Records:
    """The records of some batches, checked, as columns. Spans are of `buffer`. Headers follow one another."""

    buffer: bytes
    timestamp_deltas_ms: Ints
    offset_deltas: Ints
    keys: Spans
    values: Spans
    header_counts: Ints
    header_keys: Spans
    header_values: Spans


def read(batches: Sequence[Batch], bodies: Sequence[bytes | memoryview], most_headers: int) -> Records:
    """Read the records of `batches` in their decompressed `bodies`.

    Raises CorruptRecord naming the batch whose records contradict themselves or its count; TooCostly for more than
    `most_headers`. Nothing is allocated for records or headers that there is no room for.
    """
    buffer = b"".join([*bodies, bytes(MAX_VARINT_BYTES)])  # so that a number may be read at any byte
    starts, ends = _hop(buffer, batches, bodies)
    base_offsets = np.array([batch.base_offset for batch in batches], np.int64)
    cursor = _Cursor(buffer, starts, ends, np.repeat(base_offsets, [batch.record_count for batch in batches]))
    cursor.move_to(starts + _ATTRIBUTES_BYTES, "attributes")
    timestamp_deltas_ms = cursor.varints("timestamp")
    offset_deltas = cursor.varints("offset")
    keys = cursor.spans("key")
    values = cursor.spans("value")
    header_counts = cursor.varints("number of headers")
    header_keys, header_values = _headers(buffer, cursor, header_counts, most_headers)
    cursor.check(cursor.at == ends, "length does not end with its headers", cursor.at - starts)
    return Records(buffer, timestamp_deltas_ms, offset_deltas, keys, values, header_counts, header_keys, header_values)


def varint(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number at `at` and where the next field begins. Raises ValueError if it does not end, IndexError."""
    zigzag = shift = 0
    for end in range(at, at + MAX_VARINT_BYTES):
        zigzag |= (buffer[end] & 0x7F) << shift
        if buffer[end] < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), end + 1
        shift += 7
    raise ValueError(f"a number of more than {MAX_VARINT_BYTES} bytes")


def _hop(buffer: bytes, batches: Sequence[Batch], bodies: Sequence[bytes | memoryview]) -> tuple[Ints, Ints]:
    """Find where each record begins, behind its length, and where it ends."""
    starts, ends = array("q"), array("q")
    end = 0
    for batch, body in zip(batches, bodies, strict=True):
        base_offset, count = batch.base_offset, batch.record_count
        start = at = end
        end += len(body)
        most = len(body) // _MIN_RECORD_BYTES
        if count > most:
            raise _corrupt(base_offset, "has fewer records than its count", count, f"room for {most}")
        for number in range(count):
            if at >= end:
                raise _corrupt(base_offset, "has fewer records than its count", count, number)
            # One byte or two, and not below 0: nearly all lengths are like that.
            first, second = buffer[at], buffer[at + 1]
            if first < 0x80 and not first & 1:
                size, at = first >> 1, at + 1
            elif second < 0x80 and not first & 1:
                size, at = (first & 0x7F | second << 7) >> 1, at + 2
            else:
                size, at = _length(buffer, at, base_offset)
            starts.append(at)
            at += size
            ends.append(at)
        if at != end or count < 0:
            found = f"{count} of {at - start} bytes"
            raise _corrupt(base_offset, "does not end with its records", f"{len(body)} bytes", found)
    return np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)


def _length(buffer: bytes, at: int, base_offset: Offset) -> tuple[int, int]:
    """Read the length of a record that is damaged or large."""
    problem = "has a record without a length"
    try:
        size, at = varint(buffer, at)
    except ValueError as error:
        raise _corrupt(base_offset, problem, "a number", error) from error
    if size < 0:
        raise _corrupt(base_offset, problem, "0 or more", size)
    return size, at


class _Cursor:
    """The next field of each record: `at` moves field by field, and never past the record's end."""

    def __init__(self, buffer: bytes, at: Ints, ends: Ints, base_offsets: Ints) -> None:
        self._raw: Bytes = np.frombuffer(buffer, np.uint8)
        self._base_offsets = base_offsets
        self.at = at
        self.ends = ends

    def move_to(self, at: Ints, field: str) -> None:
        self.check(at <= self.ends, f"{field} does not fit", at - self.at)
        self.at = at

    def varints(self, field: str) -> Ints:
        byte = self._raw[self.at]
        numbers = (byte & 0x7F).astype(np.uint64)
        ends = self.at + 1
        rows, shift = np.flatnonzero(byte >= 0x80), 7
        while len(rows) and shift < 7 * MAX_VARINT_BYTES:
            byte = self._raw[ends[rows]]
            numbers[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            ends[rows] += 1
            rows, shift = rows[byte >= 0x80], shift + 7
        if len(rows):
            raise self.refusal(int(rows[0]), f"{field} is a number without an end")
        self.move_to(ends, field)
        return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)

    def spans(self, field: str) -> Spans:
        """Read the next bytes of each record, which follow their length."""
        lengths = self.varints(field)
        self.check(lengths <= self.ends - self.at, f"{field} does not fit", lengths)
        starts, is_present = self.at, lengths >= 0
        self.at = starts + np.where(is_present, lengths, 0)
        return Spans(starts, self.at, is_present)

    def check(self, holds: Flags, problem: str, found: Ints) -> None:
        """Raise CorruptRecord for the first record for which `holds` is false."""
        if not holds.all():
            row = int(np.argmin(holds))
            raise self.refusal(row, problem, f"at most {self.ends[row] - self.at[row]} bytes", found[row])

    def refusal(self, row: int, problem: str, expected: object = None, found: object = None) -> CorruptRecord:
        return _corrupt(Offset(int(self._base_offsets[row])), f"has a record whose {problem}", expected, found)


def _headers(buffer: bytes, cursor: _Cursor, counts: Ints, most_headers: int) -> tuple[Spans, Spans]:
    """Read keys and values of all headers, whose number is known to fit; move `cursor` behind them."""
    cursor.check(counts >= 0, "number of headers is below 0", counts)
    cursor.check(counts <= (cursor.ends - cursor.at) // _MIN_HEADER_BYTES, "number of headers does not fit", counts)
    if (headers := int(counts.sum())) > most_headers:
        raise TooCostly(f"{headers} headers at once; at most {most_headers} can be decoded")
    starts, lengths = array("q"), array("q")
    rows = np.flatnonzero(counts)
    behind = cursor.at.copy()
    spans = zip(rows.tolist(), behind[rows].tolist(), cursor.ends[rows].tolist(), counts[rows].tolist(), strict=True)
    for row, at, end, count in spans:
        try:
            behind[row] = _walk(buffer, at, end, count, starts, lengths)
        except (ValueError, IndexError) as error:
            raise cursor.refusal(row, "headers do not fit", "keys and values", error) from error
    cursor.move_to(behind, "headers")
    edges, sizes = np.frombuffer(starts, np.int64), np.frombuffer(lengths, np.int64)
    return _spans(edges[0::2], sizes[0::2]), _spans(edges[1::2], sizes[1::2])


def _walk(buffer: bytes, at: int, end: int, count: int, starts: array[int], lengths: array[int]) -> int:
    """Add start and length (-1 for a null) of `count` keys and values; return the end of the last one.

    Raises ValueError, IndexError if they reach beyond `end`, or if a key is null.
    """
    for number in range(2 * count):
        size = buffer[at]
        if size < 0x80 and not size & 1:
            size, at = size >> 1, at + 1
        else:
            size, at = varint(buffer, at)
            if size < 0 and number % 2 == 0:
                raise ValueError("a header without a key")
        starts.append(at)
        if size >= 0:
            lengths.append(size)
            at += size
        else:
            lengths.append(-1)
        if at > end:
            raise ValueError(f"{at - end} bytes too many")
    return at


def _spans(starts: Ints, lengths: Ints) -> Spans:
    return Spans(starts, starts + np.maximum(lengths, 0), lengths >= 0)


def _corrupt(base_offset: Offset, problem: str, expected: object, found: object) -> CorruptRecord:
    return CorruptRecord(f"the batch {problem}", offset=base_offset, expected=expected, found=found, hint=WRITTEN_SO)
