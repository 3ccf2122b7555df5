"""Compressed streams that Arrow reads: streams or frames one after the other, joined. Pure.

What they become is bounded, and so is the work: each byte is handed over once, also of a million frames of nothing.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

PIECE_BYTES: Final = 1024 * 1024


class TooLarge(Exception):
    """It becomes more than the limit."""


def decompressed(stored: bytes | memoryview, codec: str, max_bytes: int) -> bytes:
    """What `stored` becomes under Arrow's `codec`: gzip, lz4 (its frame format), zstd; little more than `max_bytes`.

    Raises OSError where `stored` is something else, or cut off; TooLarge.
    """
    parts: list[bytes] = []
    left_bytes = max_bytes
    with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
        while part := stream.read(PIECE_BYTES):
            left_bytes -= len(part)
            if left_bytes < 0:
                raise TooLarge
            parts.append(part)
    return b"".join(parts)
