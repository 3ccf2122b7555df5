"""The items of a batch: the body of a SEND_BATCH_MESSAGE request or of an inner-batch record (sys_flag bit 0x80).

==================  =====  ===========================================================
field               bytes  meaning (MessageDecoder.encodeMessage / decodeMessage)
==================  =====  ===========================================================
total size          i32    of the item, this field included
magic               i32    0; ignored
body CRC            i32    0; ignored
flag                i32    the producer's own flag
body length + body  i32+n
properties          i16+n  as in a record
==================  =====  ===========================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from sources.errors import CorruptRecord

_LEAD = struct.Struct(
    ">"
    "i"  # total size
    "i"  # magic, 0
    "i"  # body CRC, 0
    "i"  # flag
    "i"  # body length
)
_PROPERTIES_LENGTH = struct.Struct(">h")
_MIN_BYTES = _LEAD.size + _PROPERTIES_LENGTH.size
_HINT = "The batch was not made by a RocketMQ client, or not all of it is here."


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One message of a batch. `properties` is its own block as stored, without what the batch has in common."""

    flag: int
    body: bytes
    properties: bytes


def encode_items(items: Iterable[BatchItem]) -> bytes:
    return b"".join(_encode(item) for item in items)


def decode_items(batch: bytes | memoryview) -> list[BatchItem]:
    """Decode the body of a batch. Raises CorruptRecord, whose offset counts from the start of `batch`."""
    view, at = memoryview(batch), 0
    items: list[BatchItem] = []
    while at < len(view):
        items.append(_decode(view[at:], at))
        at += _size(items[-1])
    return items


def _size(item: BatchItem) -> int:
    return _MIN_BYTES + len(item.body) + len(item.properties)


def _encode(item: BatchItem) -> bytes:
    lead = _LEAD.pack(_size(item), 0, 0, item.flag, len(item.body))
    return lead + item.body + _PROPERTIES_LENGTH.pack(len(item.properties)) + item.properties


def _decode(rest: memoryview, at: int) -> BatchItem:
    if len(rest) < _MIN_BYTES:
        raise _corrupt("a batch item is cut off", at, f"at least {_MIN_BYTES} bytes", len(rest))
    size, _magic, _crc, flag, body_length = _LEAD.unpack_from(rest)
    body_end = _LEAD.size + body_length
    if not 0 <= body_length <= len(rest) - _MIN_BYTES:
        raise _corrupt("a batch item's body does not fit", at, f"0 to {len(rest) - _MIN_BYTES} bytes", body_length)
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(rest, body_end)
    end = body_end + _PROPERTIES_LENGTH.size + properties_length
    if properties_length < 0 or end != size or end > len(rest):
        raise _corrupt("a batch item's size is not the sum of its parts", at, f"{end} bytes", size)
    body, properties = rest[_LEAD.size : body_end], rest[end - properties_length : end]
    return BatchItem(flag, bytes(body), bytes(properties))


def _corrupt(problem: str, at: int, expected: str, found: int) -> CorruptRecord:
    return CorruptRecord(problem, offset=at, expected=expected, found=f"{found} bytes", hint=_HINT)
