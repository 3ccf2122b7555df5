"""One record of a RocketMQ commit log: bytes <-> value. Pure. The package `columns` handles many records at once.

`layout` says how a record is laid out, field by field; `checks` says what must hold of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sources.decoding.undecodable import as_damage
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.format.batches import BatchItem, decode_items, encode_items
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
from sources.rocketmq.format.hosts import Host
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
