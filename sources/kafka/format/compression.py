"""Decompression of a record batch's records. Bits 0-2 of its attributes name the codec (CompressionType.java).

==  ======  ==========================================================================================================
1   gzip    RFC 1952
2   snappy  blocks in xerial's frame, as the Java client writes them: 8 bytes of magic, two i32 of versions, then
            (i32 length, block) up to the end; or one bare block, as librdkafka does. A block begins with its
            decompressed length, 7 bits per byte, the lowest first
3   lz4     LZ4 frame format
4   zstd    RFC 8878, often without the content size
==  ======  ==========================================================================================================

Today's brokers check what producers send, old ones did not, and none limits the decompressed size: that limit is ours.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from sources.decoding.compressed_stream import TooLarge, decompressed
from sources.errors import CorruptRecord
from sources.offsets import Offset

UNCOMPRESSED: Final = 0
_CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = struct.Struct(">i")
_LENGTH_VARINT_BYTES: Final = 5


def decompress(stored: memoryview, compression: int, max_bytes: int, offset: Offset) -> bytes:
    """Return the records of the batch at `offset`. Never holds much more than `max_bytes`, whatever `stored` claims.

    Raises CorruptRecord if `stored` contradicts `compression`, or becomes more than `max_bytes`.
    """
    codec = _CODECS.get(compression)
    try:
        if codec is None:
            raise ValueError(f"compression {compression}")
        return _snappy(stored, max_bytes) if codec == "snappy" else decompressed(stored, codec, max_bytes)
    except TooLarge:
        raise CorruptRecord(
            "the records of the batch are larger than this reader takes",
            offset=offset,
            expected=f"at most {max_bytes} bytes",
            found=f"more, from {len(stored)} compressed bytes",
            hint="No option raises this limit. With on_loss = record the batch goes to quarantine, as it is stored.",
        ) from None
    except (OSError, ValueError, struct.error) as error:
        raise CorruptRecord(
            "the records of the batch cannot be decompressed",
            offset=offset,
            expected=codec or "a compression from 1 to 4",
            found=error,
            hint="The CRC of the batch is right: the producer, or the broker that recompressed it, wrote it like this.",
        ) from error


def _snappy(stored: memoryview, max_bytes: int) -> bytes:
    if bytes(stored[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(stored, max_bytes)
    parts: list[bytes] = []
    at, left_bytes = _XERIAL_HEADER_BYTES, max_bytes
    while at < len(stored):
        (length,) = _BLOCK_LENGTH.unpack_from(stored, at)
        at += _BLOCK_LENGTH.size
        if not 0 <= length <= len(stored) - at:
            raise ValueError(f"a block of {length} bytes with {len(stored) - at} left")
        parts.append(_snappy_block(stored[at : at + length], left_bytes))
        left_bytes -= len(parts[-1])
        at += length
    return b"".join(parts)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = _decompressed_length(block)
    if size > max_bytes:
        raise TooLarge
    body: bytes = pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
    return body


def _decompressed_length(block: memoryview) -> int:
    length = 0
    for number, byte in enumerate(block[:_LENGTH_VARINT_BYTES]):
        length |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return length
    raise ValueError("a block without its length")
