"""Host addresses as a commit-log record stores them, and as RocketMQ prints them.

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

import re
import struct
from dataclasses import dataclass

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
