"""Message bodies: their checksum and their compression, as sys_flag describes it.

==========  ==========================================================================================
sys_flag    meaning (org.apache.rocketmq.common.sysflag.MessageSysFlag, .common.compression)
==========  ==========================================================================================
0x001       the stored body is compressed
0x700       how: 0x000 zlib (clients before 5.0), 0x100 LZ4, 0x200 ZSTD, 0x300 zlib; others do not exist
==========  ==========================================================================================

zlib is an RFC 1950 stream, LZ4 the frame format, ZSTD standard frames whose header may lack the content size, because
the Java client writes them as a stream. Only producers compress and only consumers decompress: a broker stores what it
gets, so a body that claims a compression may be anything.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable

import lz4.frame
import zstandard
from isal.isal_zlib import crc32

from sources.rocketmq.layout import CRC_BITS, DEFAULT_LIMITS, Limits

COMPRESSED = 0x1
_KIND_MASK = 0x700

# A block of at most 128 KiB takes at least 4 bytes (RFC 8878, 3.1.1.2: an RLE block): the most one byte can become.
_ZSTD_MAX_EXPANSION = 128 * 1024 // 4
_ZSTD_MIN_SLICE_BYTES = 64


class Compression(enum.IntEnum):
    """The compression bits of sys_flag."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300

    @property
    def sys_flag(self) -> int:
        """The bits a record with such a body carries."""
        return COMPRESSED | self.value


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 of the stored body with the top bit cleared, as brokers store it."""
    return crc32(body) & CRC_BITS


def compress(body: bytes, kind: Compression) -> bytes:
    """The stored form of `body`, as the Java client of 5.x makes it."""
    if kind is Compression.LZ4:
        return bytes(lz4.frame.compress(body))
    if kind is Compression.ZSTD:
        stream = zstandard.ZstdCompressor().compressobj()
        return stream.compress(body) + stream.flush()
    return zlib.compress(body, 5)


def decompress(stored: bytes | memoryview, sys_flag: int, limits: Limits = DEFAULT_LIMITS) -> bytes | None:
    """The body a consumer gets; None where `stored` is not what sys_flag says, or passes `limits.max_body_bytes`.

    Never holds much more than that limit, whatever `stored` claims. An empty body is empty under every flag.
    """
    if not sys_flag & COMPRESSED or not stored:
        return bytes(stored)
    decoder = _DECODERS.get(sys_flag & _KIND_MASK)
    body = None if decoder is None else decoder(bytes(stored), limits.max_body_bytes)
    return None if body is None or len(body) > limits.max_body_bytes else body


def _zlib(stored: bytes, max_bytes: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(stored, max_bytes + 1)
    except zlib.error:
        return None
    return body if stream.eof else None


def _lz4(stored: bytes, max_bytes: int) -> bytes | None:
    body = b""
    while stored and len(body) <= max_bytes:
        frame = lz4.frame.LZ4FrameDecompressor()
        try:
            body += frame.decompress(stored, max_bytes + 1 - len(body))
        except RuntimeError:
            return None
        if not frame.eof:
            return None
        stored = frame.unused_data or b""
    return body


def _zstd(stored: bytes, max_bytes: int) -> bytes | None:
    """Frame after frame, fed in slices so small that even the densest one cannot pass `max_bytes` by far."""
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    parts: list[bytes] = []
    at, left_bytes = 0, max_bytes
    while at < len(stored) and left_bytes >= 0:
        if frame.eof:
            frame = decompressor.decompressobj()
        end = min(at + max(left_bytes // _ZSTD_MAX_EXPANSION, _ZSTD_MIN_SLICE_BYTES), len(stored))
        try:
            parts.append(frame.decompress(stored[at:end]))
        except zstandard.ZstdError:
            return None
        left_bytes -= len(parts[-1])
        at = end - len(frame.unused_data)
    return b"".join(parts) if frame.eof and left_bytes >= 0 else None


_DECODERS: dict[int, Callable[[bytes, int], bytes | None]] = {
    0: _zlib,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
    Compression.ZLIB: _zlib,
}
