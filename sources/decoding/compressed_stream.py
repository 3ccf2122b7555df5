"""Compressed streams that Arrow reads: streams or frames one after the other, joined. Pure.

What they become is bounded, and so is the work: each byte is handed over once, also of a million frames of nothing.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

PIECE_BYTES: Final = 1024 * 1024
_NO_MEMORY: Final = "not enough memory"  # of zstd's words, which Arrow passes on as an OSError


class TooLarge(Exception):
    """It becomes more than the limit."""


def decompressed(stored: bytes | memoryview, codec: str, max_bytes: int) -> bytes:
    """What `stored` becomes under Arrow's `codec`: gzip, lz4 (its frame format), zstd; little more than `max_bytes`.

    Raises OSError where `stored` is something else, or cut off; TooLarge; MemoryError, which is no fault of `stored`.
    """
    try:
        return _read(stored, codec, max_bytes)
    except OSError as error:
        if _NO_MEMORY in str(error):
            raise MemoryError(str(error)) from error
        raise


def _read(stored: bytes | memoryview, codec: str, max_bytes: int) -> bytes:
    parts: list[pa.Buffer] = []
    left_bytes = max_bytes
    with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
        # Not `read`, which loses the memory of its answer for good where the stream turns out to be damaged.
        while (part := stream.read_buffer(PIECE_BYTES)).size:
            left_bytes -= part.size
            if left_bytes < 0:
                raise TooLarge
            parts.append(part)
    return b"".join(parts)
