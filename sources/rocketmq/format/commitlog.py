"""One record of a RocketMQ commit log: bytes <-> value. Pure. The package `columns` handles many records at once.

`layout` says how a record is laid out, field by field; `checks` says what must hold of it.

The items of a batch, which is the body of a SEND_BATCH_MESSAGE request or of an inner-batch record (sys_flag bit 0x80):

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

from sources.decoding.undecodable import as_damage
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.format.bodies import COMPRESSED, Compression, body_crc, compress, decompress
from sources.rocketmq.format.checks import (
    check_crc,
    check_head,
    check_place,
    check_room,
    check_size,
    check_sum,
    checked_topic,
)
from sources.rocketmq.format.layout import (
    BLANK,
    BODY_LENGTH,
    BORN_HOST_IPV6,
    DEFAULT_LIMITS,
    DEFAULT_MAX_RECORD_BYTES,
    HEAD,
    LEAD,
    PROPERTIES_LENGTH,
    STORE_HOST_IPV6,
    STORE_TIMESTAMP,
    TAIL,
    TOPIC_LENGTH,
    V1,
    V2,
    Buffer,
    Host,
    Lead,
    Limits,
    host_bytes,
    minimum_size,
    read_head,
)
from sources.rocketmq.format.properties import java_hash

__all__ = [
    "BLANK", "BORN_HOST_IPV6", "COMPRESSED", "DEFAULT_LIMITS", "DEFAULT_MAX_RECORD_BYTES", "HEAD", "STORE_HOST_IPV6",
    "V1", "V2", "BatchItem", "Blank", "Buffer", "Compression", "Host", "Limits", "Message", "body_crc", "check_head",
    "compress", "decode", "decode_items", "decompress", "encode", "encode_items", "framed_size", "java_hash",
    "read_head",
]  # fmt: skip

_ITEM_LEAD = struct.Struct(
    ">"
    "i"  # total size
    "i"  # magic, 0
    "i"  # body CRC, 0
    "i"  # flag
    "i"  # body length
)
_MIN_ITEM_BYTES = _ITEM_LEAD.size + PROPERTIES_LENGTH.size
_ITEM_HINT = "The batch was not made by a RocketMQ client, or not all of it is here."


@dataclass(frozen=True, slots=True)
class Message:
    """A message record, in wire order. `body` and `properties` are the stored bytes; times are in ms."""

    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    offset: Offset
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes

    @property
    def size(self) -> int:
        """Bytes of the record; the next record starts at `offset + size`."""
        return (
            minimum_size(self.magic, self.sys_flag) + len(self.body) + len(self.topic.encode()) + len(self.properties)
        )


@dataclass(frozen=True, slots=True)
class Blank:
    """The filler at the end of a file. `rest` is what follows its head: `size - 8` bytes, mostly zeros."""

    offset: Offset
    size: int
    rest: bytes


def decode(buffer: Buffer, at: int, offset: Offset, limits: Limits = DEFAULT_LIMITS) -> Message | Blank | None:
    """Return the record at index `at` of `buffer`, which is byte `offset` of the log; None if it is not all there yet.

    The head is checked first: a wrong one is an error before the rest has come, and before anything is allocated. Then
    follow the record's place, the sum of its parts, its body's CRC, its topic's UTF-8. Raises CorruptRecord.
    """
    available = len(buffer) - at
    if available < HEAD.size:
        return None
    size, magic = read_head(buffer, at)
    check_head(size, magic, offset, limits)
    if available < size:
        return None
    with memoryview(buffer) as view, view[at : at + size] as record:
        if magic == BLANK:
            return Blank(offset, size, bytes(record[HEAD.size :]))
        with as_damage(offset):
            return _decode_message(record, offset)


_Parts = tuple[Host, int, Host, int, int, bytes, bytes, bytes]
"""The fields after the lead of a message, in wire order; their lengths add up."""


def _decode_message(record: memoryview, offset: Offset) -> Message:
    _size, magic, crc, queue_id, flag, queue_offset, place, sys_flag, born_ms = LEAD.unpack_from(record)
    check_place(place, offset)
    born_host, store_ms, store_host, reconsumed, prepared, body, topic, properties = _decode_parts(
        record, magic, sys_flag, offset
    )
    check_crc(body, crc, offset)
    return Message(
        magic, crc, queue_id, flag, queue_offset, offset, sys_flag, born_ms, born_host, store_ms, store_host,
        reconsumed, prepared, body, checked_topic(topic, offset), properties,
    )  # fmt: skip


def _decode_parts(record: memoryview, magic: int, sys_flag: int, offset: Offset) -> _Parts:
    check_size(len(record), minimum_size(magic, sys_flag), offset)
    born_host, at = _decode_host(record, LEAD.size, sys_flag & BORN_HOST_IPV6)
    (store_ms,) = STORE_TIMESTAMP.unpack_from(record, at)
    store_host, at = _decode_host(record, at + STORE_TIMESTAMP.size, sys_flag & STORE_HOST_IPV6)
    reconsume_times, prepared_transaction_offset = TAIL.unpack_from(record, at)
    room = TOPIC_LENGTH[magic].size + PROPERTIES_LENGTH.size
    body, at = _decode_part(record, at + TAIL.size, BODY_LENGTH, "body", offset, room_bytes=room)
    topic, at = _decode_part(record, at, TOPIC_LENGTH[magic], "topic", offset, room_bytes=PROPERTIES_LENGTH.size)
    properties, at = _decode_part(record, at, PROPERTIES_LENGTH, "properties", offset, room_bytes=0)
    check_sum(len(record), at, offset)
    return born_host, store_ms, store_host, reconsume_times, prepared_transaction_offset, body, topic, properties


def _decode_host(record: memoryview, at: int, ipv6: int) -> tuple[Host, int]:
    end = at + host_bytes(ipv6)
    return Host.unpack(bytes(record[at:end])), end


def _decode_part(
    record: memoryview, at: int, length: struct.Struct, name: str, offset: int, *, room_bytes: int
) -> tuple[bytes, int]:
    """Read a length and that many bytes; return these and where the next field starts. `room_bytes` must be left."""
    (size,) = length.unpack_from(record, at)
    start = at + length.size
    left = len(record) - start - room_bytes
    check_room(name, size, left, offset)
    return bytes(record[start : start + size]), start + size


def framed_size(buffer: Buffer, offset: Offset, limits: Limits = DEFAULT_LIMITS) -> int | None:
    """Return the size of the message that `buffer` begins with, even if the message is damaged.

    It must be in its place and its lengths must add up. None if its own size cannot tell where the next record starts,
    or if not all of it is there.
    """
    with memoryview(buffer) as view:
        if len(view) < LEAD.size:
            return None
        lead = Lead._make(LEAD.unpack_from(view))
        if lead.magic == BLANK or lead.offset != offset or lead.size > len(view):
            return None
        try:
            check_head(lead.size, lead.magic, offset, limits)
            with view[: lead.size] as record:
                _decode_parts(record, lead.magic, lead.sys_flag, offset)
        except CorruptRecord:
            return None
        return lead.size


def encode(record: Message | Blank) -> bytes:
    """Return the record as a broker stores it: the inverse of `decode`.

    Raises ValueError for a message that no record can hold, or whose hosts contradict its sys_flag.
    """
    if isinstance(record, Blank):
        return HEAD.pack(record.size, BLANK) + record.rest
    topic = record.topic.encode()
    _check_hosts(record)
    try:
        parts = (
            _encode_lead(record),
            record.born_host.pack(),
            STORE_TIMESTAMP.pack(record.store_timestamp_ms),
            record.store_host.pack(),
            TAIL.pack(record.reconsume_times, record.prepared_transaction_offset),
            BODY_LENGTH.pack(len(record.body)),
            record.body,
            TOPIC_LENGTH[record.magic].pack(len(topic)),
            topic,
            PROPERTIES_LENGTH.pack(len(record.properties)),
            record.properties,
        )
    except struct.error as error:
        raise ValueError(f"a field of the message at {record.offset} passes its width: {error}") from error
    return b"".join(parts)


def _encode_lead(message: Message) -> bytes:
    return LEAD.pack(
        message.size,
        message.magic,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.offset,
        message.sys_flag,
        message.born_timestamp_ms,
    )


def _check_hosts(message: Message) -> None:
    born, store = bool(message.sys_flag & BORN_HOST_IPV6), bool(message.sys_flag & STORE_HOST_IPV6)
    if (message.born_host.is_ipv6, message.store_host.is_ipv6) != (born, store):
        raise ValueError(f"sys_flag {message.sys_flag:#x} of the message at {message.offset} names other hosts")


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One message of a batch. `properties` is its own block as stored, without what the batch has in common."""

    flag: int
    body: bytes
    properties: bytes


def encode_items(items: Iterable[BatchItem]) -> bytes:
    return b"".join(_encode_item(item) for item in items)


def decode_items(batch: bytes | memoryview) -> list[BatchItem]:
    """Decode the body of a batch. Raises CorruptRecord, whose offset counts from the start of `batch`."""
    view, at = memoryview(batch), 0
    items: list[BatchItem] = []
    while at < len(view):
        items.append(_decode_item(view[at:], at))
        at += _item_size(items[-1])
    return items


def _item_size(item: BatchItem) -> int:
    return _MIN_ITEM_BYTES + len(item.body) + len(item.properties)


def _encode_item(item: BatchItem) -> bytes:
    lead = _ITEM_LEAD.pack(_item_size(item), 0, 0, item.flag, len(item.body))
    return lead + item.body + PROPERTIES_LENGTH.pack(len(item.properties)) + item.properties


def _decode_item(rest: memoryview, at: int) -> BatchItem:
    if len(rest) < _MIN_ITEM_BYTES:
        raise _corrupt_item("a batch item is cut off", at, f"at least {_MIN_ITEM_BYTES} bytes", len(rest))
    size, _magic, _crc, flag, body_length = _ITEM_LEAD.unpack_from(rest)
    body_end = _ITEM_LEAD.size + body_length
    if not 0 <= body_length <= len(rest) - _MIN_ITEM_BYTES:
        raise _corrupt_item(
            "a batch item's body does not fit", at, f"0 to {len(rest) - _MIN_ITEM_BYTES} bytes", body_length
        )
    (properties_length,) = PROPERTIES_LENGTH.unpack_from(rest, body_end)
    end = body_end + PROPERTIES_LENGTH.size + properties_length
    if properties_length < 0 or end != size or end > len(rest):
        raise _corrupt_item("a batch item's size is not the sum of its parts", at, f"{end} bytes", size)
    body, properties = rest[_ITEM_LEAD.size : body_end], rest[end - properties_length : end]
    return BatchItem(flag, bytes(body), bytes(properties))


def _corrupt_item(problem: str, at: int, expected: str, found: int) -> CorruptRecord:
    return CorruptRecord(problem, offset=at, expected=expected, found=f"{found} bytes", hint=_ITEM_HINT)
