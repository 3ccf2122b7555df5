"""The checksum and the compression of message bodies, as sys_flag describes it.

==========  ==========================================================================================
sys_flag    meaning (org.apache.rocketmq.common.sysflag.MessageSysFlag, .common.compression)
==========  ==========================================================================================
0x001       the stored body is compressed
0x700       codec: 0x000 zlib (clients before 5.0), 0x100 LZ4, 0x200 ZSTD, 0x300 zlib; no others exist
==========  ==========================================================================================

zlib is an RFC 1950 stream, LZ4 the frame format, ZSTD standard frames, whose header may lack the content size because
the Java client writes them as a stream. Only producers compress and only consumers decompress: a broker stores what it
gets, so a body that claims to be compressed may be anything.
"""

from __future__ import annotations

import contextlib
import enum
import zlib
from collections.abc import Callable

import lz4.frame
import zstandard
from isal.isal_zlib import crc32

from sources.decoding.compressed_stream import PIECE_BYTES, decompressed
from sources.decoding.undecodable import as_damage
from sources.errors import CorruptRecord
from sources.rocketmq.format.layout import CRC_BITS, DEFAULT_LIMITS, Limits

COMPRESSED = 0x1
_KIND_MASK = 0x700


class Compression(enum.IntEnum):
    """The compression bits of sys_flag."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300

    @property
    def sys_flag(self) -> int:
        """The bits that a record with such a body carries."""
        return COMPRESSED | self.value


def body_crc(body: bytes | memoryview) -> int:
    """Return the CRC-32 of the stored body with the top bit cleared, as brokers store it."""
    return crc32(body) & CRC_BITS


def compress(body: bytes, kind: Compression) -> bytes:
    """Return the stored form of `body`, as the Java client of 5.x makes it."""
    if kind is Compression.LZ4:
        return bytes(lz4.frame.compress(body))
    if kind is Compression.ZSTD:
        stream = zstandard.ZstdCompressor().compressobj()
        return stream.compress(body) + stream.flush()
    return zlib.compress(body, 5)


def decompress(stored: bytes | memoryview, sys_flag: int, limits: Limits = DEFAULT_LIMITS) -> bytes | None:
    """Return the body a consumer gets; None if `stored` contradicts sys_flag or exceeds `limits.max_body_bytes`.

    Never holds much more than that limit, whatever `stored` claims, and looks at each byte of it once, even if it is a
    million empty frames. An empty body is empty under every flag.
    """
    if not sys_flag & COMPRESSED or not stored:
        return bytes(stored)
    decoder = _DECODERS.get(sys_flag & _KIND_MASK)
    body = None
    if decoder is not None:
        with (
            contextlib.suppress(CorruptRecord, OSError),
            as_damage(None),
        ):  # Arrow's codecs fail with OSError; TooLarge is damage, too
            body = decoder(bytes(stored), limits.max_body_bytes)
    return None if body is None or len(body) > limits.max_body_bytes else body


def _zlib(stored: bytes, max_bytes: int) -> bytes | None:
    stream = zlib.decompressobj()
    body = stream.decompress(stored, max_bytes + 1)
    return body if stream.eof else None


def _lz4(stored: bytes, max_bytes: int) -> bytes | None:
    """Decompress frame after frame with one decoder, which takes what it can of the rest and says how much that was."""
    decoder = lz4.frame.create_decompression_context()
    parts: list[bytes] = []
    at, left_bytes, is_whole = 0, max_bytes, False
    with memoryview(stored) as view:
        while at < len(view) and left_bytes >= 0:
            most_bytes = min(left_bytes + 1, PIECE_BYTES)
            part, taken, is_whole = lz4.frame.decompress_chunk(decoder, view[at:], max_length=most_bytes)
            if not taken and not part:
                return None
            parts.append(part)
            at, left_bytes = at + taken, left_bytes - len(part)
    return b"".join(parts) if is_whole else None


_DECODERS: dict[int, Callable[[bytes, int], bytes | None]] = {
    0: _zlib,
    Compression.LZ4: _lz4,
    Compression.ZSTD: lambda stored, max_bytes: decompressed(stored, "zstd", max_bytes),
    Compression.ZLIB: _zlib,
}
