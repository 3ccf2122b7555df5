"""The layout of a record of a RocketMQ commit log: its fields, their sizes, and the limits of a reader.

A commit log is a sequence of records with nothing between them. Source: MessageExtEncoder (writer),
CommitLog.checkMessageAndReturnSize and MessageDecoder (readers) of org.apache.rocketmq. Integers are big-endian and
signed; `n` is the value of the length field before it.

=============================  ==============  =========================================================================
field                          bytes           meaning
=============================  ==============  =========================================================================
total size                     i32             of the whole record, this field included
magic                          i32             0xDAA320A7 V1, 0xDAA320AB V2 (5.1.0 on; topic over 127 bytes)
body CRC                       i32             CRC-32 of the stored body, top bit cleared
queue id                       i32
flag                           i32             the producer's own
queue offset                   i64             index in the consume queue of (topic, queue id)
physical offset                i64             the record's own place in the log
sys_flag                       i32             0x1 compressed, 0x10 IPv6 born host, 0x20 IPv6 store host, …
born timestamp                 i64             ms, producer's clock
born host                      8 or 20         4- or 16-byte address, port i32
store timestamp                i64             ms, broker's clock
store host                     8 or 20         the broker that wrote it
reconsume times                i32
prepared transaction offset    i64             for a committed transaction: place of its half message
body                           i32 + n         as the producer sent it
topic                          V1 i8, V2 i16   UTF-8
properties                     i16 + n         see `properties`
=============================  ==============  =========================================================================

A segment file ends in a **blank** if the next record did not fit: i32 number of bytes left in the file from its first
byte on, magic 0xCBD43194, then whatever the file holds. For offsets, a blank counts as a record.

A host, as a record stores it and as RocketMQ prints it:

============  =================  ====================================================
field         bytes              as text (java.net.InetSocketAddress)
============  =================  ====================================================
IPv4 address  4, then port i32   ``127.0.0.1:10911``
IPv6 address  16, then port i32  ``[0:0:0:0:0:0:0:1]:10911``: hex groups, no ``::``
============  =================  ====================================================

Java turns an IPv4 address mapped into IPv6 (``::ffff:a.b.c.d``) into a plain IPv4 address and prints it as one, while
the record's sys_flag still says 16 bytes. So the text alone does not tell the stored form, and `parse` must be told.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview | mmap.mmap

V1: Final = -626843481  # 0xDAA320A7
V2: Final = -626843477  # 0xDAA320AB
BLANK: Final = -875286124  # 0xCBD43194
BORN_HOST_IPV6: Final = 0x10
STORE_HOST_IPV6: Final = 0x20
CRC_BITS: Final = 0x7FFFFFFF  # the bits of a CRC-32 that a broker stores: it clears the top one

DEFAULT_MAX_RECORD_BYTES: Final = 16 * 1024 * 1024  # brokers refuse more than maxMessageSize, 4 MiB by default

HEAD = struct.Struct(
    ">"
    "i"  # total size
    "i"  # magic
)
LEAD = struct.Struct(
    ">"
    "i"  # total size
    "i"  # magic
    "i"  # body CRC
    "i"  # queue id
    "i"  # flag
    "q"  # queue offset
    "q"  # physical offset
    "i"  # sys_flag
    "q"  # born timestamp; the born host follows
)
STORE_TIMESTAMP = struct.Struct(">q")  # the store host follows
TAIL = struct.Struct(
    ">"
    "i"  # reconsume times
    "q"  # prepared transaction offset
)


class Lead(NamedTuple):
    """The fields of LEAD by their names: their values, or the bytes at which they begin."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    offset: int
    sys_flag: int
    born_timestamp: int


class Tail(NamedTuple):
    """The fields of TAIL."""

    reconsume_times: int
    prepared_transaction_offset: int


def _places(fields: struct.Struct) -> Iterator[int]:
    """At which byte each begins."""
    return (struct.calcsize(fields.format[:end]) for end in range(1, len(fields.format)))


LEAD_AT: Final = Lead(*_places(LEAD))
"""At which byte of a record each field begins."""

TAIL_AT: Final = Tail(*_places(TAIL))
"""At which byte behind the store host."""

MESSAGE_HEAD = struct.Struct(f"{HEAD.format}{LEAD_AT.offset - HEAD.size}xq")
"""What tells a message in its place: size, magic, and, further on, the record's own physical offset."""
BODY_LENGTH = struct.Struct(">i")
TOPIC_LENGTH = {V1: struct.Struct(">b"), V2: struct.Struct(">h")}
PROPERTIES_LENGTH = struct.Struct(">h")
IPV4_HOST_BYTES: Final = 8
IPV6_HOST_BYTES: Final = 20

# The fields that every message has; the two hosts and the topic's length differ by form.
_FIXED_BYTES = LEAD.size + STORE_TIMESTAMP.size + TAIL.size + BODY_LENGTH.size + PROPERTIES_LENGTH.size


@dataclass(frozen=True, slots=True)
class Files:
    """The cut of a log into segment files: one starts at offset `start`, and each has `size` bytes."""

    start: int
    size: int

    def end_after(self, offset: int) -> int:
        return offset + self.size - (offset - self.start) % self.size


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a reader takes into memory: sizes of records and of decompressed bodies.

    `max_decompressed_bytes` limits the decompressed bodies of one decoded batch of records, not of one record. `files`
    is None if nobody knows how the log is cut; then a blank of a wrong size cannot be told from a sound one.
    """

    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    max_body_bytes: int = 64 * 1024 * 1024
    max_decompressed_bytes: int = 256 * 1024 * 1024
    files: Files | None = None


DEFAULT_LIMITS = Limits()


def minimum_size(magic: int, sys_flag: int) -> int:
    """Return the size of a message record of this form with empty body, topic and properties."""
    hosts = host_bytes(sys_flag & BORN_HOST_IPV6) + host_bytes(sys_flag & STORE_HOST_IPV6)
    return _FIXED_BYTES + TOPIC_LENGTH[magic].size + hosts


def host_bytes(ipv6: int) -> int:
    """Return the size of a stored host; `ipv6` is its bit of sys_flag."""
    return IPV6_HOST_BYTES if ipv6 else IPV4_HOST_BYTES


def read_head(buffer: Buffer, at: int) -> tuple[int, int]:
    """Return the size and magic of the record at index `at`, unchecked. The 8 bytes must be there."""
    size, magic = HEAD.unpack_from(buffer, at)
    return size, magic


PORT = struct.Struct(">i")  # brokers write 0 to 65535; any int is kept as it is
_IPV6 = struct.Struct(">8H")
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"
_TEXT = re.compile(r"(?:\[(?P<v6>[0-9a-f:]+)\]|(?P<v4>[0-9.]+)):(?P<port>-?\d+)")


@dataclass(frozen=True, slots=True)
class Host:
    """Address and port of a host; `ip` is 4 or 16 bytes."""

    ip: bytes
    port: int

    @classmethod
    def unpack(cls, stored: bytes) -> Host:
        """Return the host in the 8 or 20 bytes of a record."""
        return cls(bytes(stored[: -PORT.size]), PORT.unpack(stored[-PORT.size :])[0])

    @classmethod
    def parse(cls, text: str, *, ipv6: bool) -> Host:
        """Parse ``ip:port``; with `ipv6`, into the 16-byte form. Raises ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no host; 127.0.0.1:10911 and [0:0:0:0:0:0:0:1]:10911 are")
        return cls(_parse_ipv6(match) if ipv6 else _parse_ipv4(match), int(match["port"]))

    def pack(self) -> bytes:
        """Return the 8 or 20 bytes of a record. Raises ValueError for an address of another length."""
        if len(self.ip) not in (4, 16):
            raise ValueError(f"an address of {len(self.ip)} bytes; IPv4 has 4, IPv6 has 16")
        return self.ip + PORT.pack(self.port)

    @property
    def is_ipv6(self) -> bool:
        """Whether it takes the 16-byte form; sys_flag must say the same."""
        return len(self.ip) == 16

    def __str__(self) -> str:
        if len(self.ip) == 16 and not self.ip.startswith(_MAPPED_IPV4):
            return f"[{':'.join(f'{group:x}' for group in _IPV6.unpack(self.ip))}]:{self.port}"
        return f"{'.'.join(map(str, self.ip[-4:]))}:{self.port}"


def _parse_ipv4(match: re.Match[str]) -> bytes:
    parts = (match["v4"] or "").split(".")
    if len(parts) != 4:
        raise ValueError(f"{match[0]!r} is no IPv4 address and port")
    return bytes(map(int, parts))


def _parse_ipv6(match: re.Match[str]) -> bytes:
    if match["v6"] is None:
        return _MAPPED_IPV4 + _parse_ipv4(match)
    groups = match["v6"].split(":")
    if len(groups) != 8:
        raise ValueError(f"{match[0]!r} is no IPv6 address and port in eight groups")
    try:
        return _IPV6.pack(*(int(group, 16) for group in groups))
    except struct.error as error:
        raise ValueError(f"{match[0]!r} has a group above ffff") from error
