"""Messages of formats 0 and 1, which brokers before 0.11 wrote and today's still hand out as they lie in a log.

==============  =====  ===========================================================================
field           bytes  meaning (Kafka documentation, "Old Message Format"; LegacyRecord.java)
==============  =====  ===========================================================================
offset          i64    of the message; of a wrapper that of its last inner message
length          i32    of the message, from the next field on
CRC             u32    CRC-32 of everything from the next field on
magic           i8     0 or 1
attributes      i8     bits 0-2 compression, 3 log append time (1 only)
timestamp       i64    ms (1 only)
key             i32+n  -1: null
value           i32+n  -1: null
==============  =====  ===========================================================================

A message with a compression is a wrapper: its value holds other messages of the same format. In format 1 the offsets of
these count from any number, and only their distances matter; log append time is the wrapper's. Messages have neither
headers, producer nor leader epoch. They are read as the batches of format 2 that `batch_encoding` makes of their rows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sources.errors import ChecksumMismatch, CorruptRecord
from sources.kafka.format.batch_encoding import encode
from sources.kafka.format.batch_header import DAMAGED, NO_TIMESTAMP, Batch, batch_at
from sources.kafka.format.columns import UNLOCATED_SCHEMA, time_columns
from sources.kafka.format.compression import UNCOMPRESSED, decompress
from sources.offsets import Offset

MAGICS: Final = (0, 1)
_MESSAGE_COST_BYTES: Final = 512
"""About what a message takes while it is read, besides its bytes."""

_PLACE: Final = struct.Struct(
    ">"
    "q"  # offset
    "i"  # length
)
_HEAD: Final = struct.Struct(
    ">"
    "I"  # CRC
    "b"  # magic
    "b"  # attributes; in format 1 the timestamp follows
)
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC_BYTES: Final = 4
_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08


class OldMessage(NamedTuple):
    """A message that is no wrapper."""

    offset: Offset
    timestamp_ms: int
    has_log_append_time: bool
    key: bytes | None
    value: bytes | None


def cost_bytes(message: OldMessage) -> int:
    """Return about what `message` takes while it is read."""
    return _MESSAGE_COST_BYTES + len(message.key or b"") + len(message.value or b"")


class _Stored(NamedTuple):
    message: OldMessage
    magic: int
    compression: int
    whole_bytes: int


def messages_of(whole: memoryview, before: Offset, max_bytes: int) -> list[OldMessage]:
    """Return the message `whole`, or those that it wraps: at least one, whose offsets are at or above `before`.

    Raises CorruptRecord, ChecksumMismatch if it contradicts itself or costs more than `max_bytes`.
    """
    offset = Offset(_PLACE.unpack_from(whole)[0])
    try:
        stored = _stored(whole, 0)
        found = [stored.message] if stored.compression == UNCOMPRESSED else _unwrapped(stored, max_bytes)
    except (struct.error, ValueError) as error:
        raise _corrupt("a message of an old format contradicts itself", offset, "fields that fit", error) from error
    least = before
    for one in found:
        if one.offset < least:
            raise _corrupt(
                "a message of an old format overlaps the one before it", offset, f"{least} or more", one.offset
            )
        least = Offset(one.offset + 1)
    return found


def as_batches(messages: Sequence[OldMessage]) -> Iterator[Batch]:
    """Yield `messages`, whose offsets ascend, as batches of format 2."""
    for batch in encode(_rows(messages)):
        made = batch_at(memoryview(batch.whole), 0)
        if made is not None:
            yield made


def _unwrapped(wrapper: _Stored, max_bytes: int) -> list[OldMessage]:
    own = wrapper.message
    inner = decompress(memoryview(own.value or b""), wrapper.compression, max_bytes, own.offset)
    found: list[OldMessage] = []
    at, left_bytes = 0, max_bytes
    while at < len(inner):
        stored = _stored(memoryview(inner), at)
        if (stored.magic, stored.compression) != (wrapper.magic, UNCOMPRESSED):
            raise ValueError(f"in a wrapper of format {wrapper.magic} one of format {stored.magic}, or another wrapper")
        left_bytes -= cost_bytes(stored.message)
        if left_bytes < 0:
            raise ValueError(f"messages that take more than {max_bytes} bytes to read")
        found.append(stored.message)
        at += stored.whole_bytes
    if not found:
        raise ValueError("a wrapper of nothing")
    if wrapper.magic == 0:
        return found
    distance = own.offset - found[-1].offset
    moved = [one._replace(offset=Offset(one.offset + distance)) for one in found]
    if not own.has_log_append_time:
        return moved
    return [one._replace(timestamp_ms=own.timestamp_ms, has_log_append_time=True) for one in moved]


def _stored(buffer: memoryview, start: int) -> _Stored:
    """Read the message at `start`. Raises ChecksumMismatch; struct.error, ValueError if its parts do not fit."""
    offset, length = _PLACE.unpack_from(buffer, start)
    begin = start + _PLACE.size
    message = buffer[begin : begin + max(length, 0)]
    if len(message) != length:
        raise ValueError(f"a message of {length} bytes with {len(message)} left")
    crc, magic, attributes = _HEAD.unpack_from(message)
    computed = zlib.crc32(message[_CRC_BYTES:])
    if computed != crc:
        raise ChecksumMismatch(
            "a message of an old format does not have its CRC",
            offset=offset,
            expected=f"CRC-32 {crc:08x} as stored",
            found=f"CRC-32 {computed:08x}",
            hint=DAMAGED,
        )
    if magic not in MAGICS:
        raise ValueError(f"magic {magic}")
    at, timestamp_ms = _HEAD.size, NO_TIMESTAMP
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(message, at)
        at += _TIMESTAMP.size
    key, at = _bytes(message, at)
    value, at = _bytes(message, at)
    if at != len(message):
        raise ValueError(f"a message of {len(message)} bytes whose parts take {at}")
    has_log_append_time = magic == 1 and attributes & _LOG_APPEND_TIME != 0
    read = OldMessage(offset, timestamp_ms, has_log_append_time, key, value)
    return _Stored(read, magic, attributes & _COMPRESSION, _PLACE.size + length)


def _bytes(message: memoryview, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(message, at)
    at += _LENGTH.size
    if length > len(message) - at:
        raise ValueError(f"{length} bytes with {len(message) - at} left")
    return (None, at) if length < 0 else (bytes(message[at : at + length]), at + length)


def _rows(messages: Sequence[OldMessage]) -> pa.RecordBatch:
    times_ms = np.array([one.timestamp_ms for one in messages], np.int64)
    kinds = np.array([one.has_log_append_time for one in messages], np.bool_)
    timestamp, timestamp_type = time_columns(times_ms, kinds)
    columns = {
        "offset": pa.array([one.offset for one in messages], pa.int64()),
        "timestamp": timestamp,
        "timestamp_type": timestamp_type,
        "key": pa.array([one.key for one in messages], pa.binary()),
        "value": pa.array([one.value for one in messages], pa.binary()),
    }
    arrays = [columns.get(field.name, pa.nulls(len(messages), field.type)) for field in UNLOCATED_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=UNLOCATED_SCHEMA)


def _corrupt(problem: str, offset: Offset, expected: str, found: object) -> CorruptRecord:
    return CorruptRecord(problem, offset=offset, expected=expected, found=found, hint=DAMAGED)
