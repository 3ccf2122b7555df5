"""One record of a RocketMQ commit log: bytes <-> value. Pure; many records at once are the business of `columns`.

How a record is laid out, field by field, stands in `layout`; what must hold of it in `checks`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.batches import BatchItem, decode_items, encode_items
from sources.rocketmq.bodies import COMPRESSED, Compression, body_crc, compress, decompress
from sources.rocketmq.checks import (
    check_crc,
    check_head,
    check_place,
    check_room,
    check_size,
    check_sum,
    check_time,
    checked_topic,
)
from sources.rocketmq.hosts import Host
from sources.rocketmq.layout import (
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
    Limits,
    host_bytes,
    minimum_size,
    read_head,
)
from sources.rocketmq.properties import java_hash

__all__ = [
    "BLANK", "BORN_HOST_IPV6", "COMPRESSED", "DEFAULT_LIMITS", "DEFAULT_MAX_RECORD_BYTES", "HEAD", "STORE_HOST_IPV6",
    "V1", "V2", "BatchItem", "Blank", "Buffer", "Compression", "Host", "Limits", "Message", "body_crc", "check_head",
    "compress", "decode", "decode_items", "decompress", "encode", "encode_items", "find_record", "java_hash",
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
        """Bytes of the record; `offset + size` is the next record."""
        return (
            minimum_size(self.magic, self.sys_flag) + len(self.body) + len(self.topic.encode()) + len(self.properties)
        )


@dataclass(frozen=True, slots=True)
class Blank:
    """The filler of a file's end. `rest` is what stands after its head: `size - 8` bytes, mostly zeros."""

    offset: Offset
    size: int
    rest: bytes


def decode(buffer: Buffer, at: int, offset: Offset, limits: Limits = DEFAULT_LIMITS) -> Message | Blank | None:
    """The record at index `at` of `buffer`, which is byte `offset` of the log; None where not all of it is there yet.

    Head first: a wrong one is an error before the rest has come, and before anything is allocated. Then the record's
    place, the sum of its parts, its body's CRC, its topic's UTF-8. Raises CorruptRecord.
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
        return _decode_message(record, offset)


def _decode_message(record: memoryview, offset: Offset) -> Message:
    _size, magic, crc, queue_id, flag, queue_offset, place, sys_flag, born_ms = LEAD.unpack_from(record)
    check_place(place, offset)
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
    check_crc(body, crc, offset)
    check_time(born_ms, "born timestamp", offset)
    check_time(store_ms, "store timestamp", offset)
    return Message(
        magic=magic,
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        offset=offset,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=born_host,
        store_timestamp_ms=store_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        topic=checked_topic(topic, offset),
        properties=properties,
    )


def _decode_host(record: memoryview, at: int, ipv6: int) -> tuple[Host, int]:
    end = at + host_bytes(ipv6)
    return Host.unpack(bytes(record[at:end])), end


def _decode_part(
    record: memoryview, at: int, length: struct.Struct, name: str, offset: int, *, room_bytes: int
) -> tuple[bytes, int]:
    """A length and as many bytes -> the bytes, and where the next field starts. `room_bytes` must be left after it."""
    (size,) = length.unpack_from(record, at)
    start = at + length.size
    left = len(record) - start - room_bytes
    check_room(name, size, left, offset)
    return bytes(record[start : start + size]), start + size


def encode(record: Message | Blank) -> bytes:
    """The record as a broker stores it: the inverse of `decode`.

    Raises ValueError for a message that no record can hold, or whose hosts are not what its sys_flag says.
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


_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]|\xcb\xd4\x31\x94")


def find_record(buffer: Buffer, start: Offset, limits: Limits = DEFAULT_LIMITS) -> Offset | None:
    """The first record boundary at or after byte `start` of the log, which `buffer` begins with. None: not in here.

    A message is recognised by its stored physical offset being its own place, and must then pass every check of
    `decode`. A body may hold a copy of a record, even of this log: it carries the offset of another place. A blank has
    no offset of its own; it counts where the record after it is in its place, or `buffer` ends exactly there.
    With None the caller has too few bytes: a message in its place of which not all is there hides what comes after it.
    """
    with memoryview(buffer) as view:
        for match in _MAGIC.finditer(view):
            at = match.start() - 4
            if at < 0 or not _has_head(view, at, start, limits):
                continue
            if read_head(view, at)[1] == BLANK:
                if _precedes_record(view, at, start, limits):
                    return Offset(start + at)
            elif _is_in_place(view, at, start):
                verdict = _verified(view, at, start, limits)
                if verdict is not False:
                    return Offset(start + at) if verdict else None
    return None


def _has_head(view: memoryview, at: int, start: Offset, limits: Limits) -> bool:
    try:
        check_head(*read_head(view, at), start + at, limits)
    except CorruptRecord:
        return False
    return True


def _is_in_place(view: memoryview, at: int, start: Offset) -> bool:
    return len(view) - at >= LEAD.size and bool(LEAD.unpack_from(view, at)[6] == start + at)


def _precedes_record(view: memoryview, at: int, start: Offset, limits: Limits) -> bool:
    end = at + read_head(view, at)[0]
    if end == len(view):
        return True
    return end + LEAD.size <= len(view) and _has_head(view, end, start, limits) and _is_in_place(view, end, start)


def _verified(view: memoryview, at: int, start: Offset, limits: Limits) -> bool | None:
    """Whether the candidate passes every check; None where not all of it is there."""
    try:
        return True if decode(view, at, Offset(start + at), limits) else None
    except CorruptRecord:
        return False
