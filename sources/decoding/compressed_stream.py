"""Decompression by Arrow of streams or frames that follow one another. Pure.

Both the output and the work are bounded: each byte is handed over once, even for a million empty frames.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

PIECE_BYTES: Final = 1024 * 1024
_NO_MEMORY: Final = "not enough memory"  # part of zstd's message, which Arrow raises as an OSError


class TooLarge(Exception):
    """The output is larger than the limit."""


def decompressed(stored: bytes | memoryview, codec: str, max_bytes: int) -> bytes:
    """Decompress `stored` with Arrow's `codec` (gzip, lz4 in its frame format, or zstd) to at most `max_bytes`.

    Raises OSError if `stored` is something else or is cut off; TooLarge; MemoryError, which is not the fault of
    `stored`.
    """
    parts: list[pa.Buffer] = []
    left_bytes = max_bytes
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
            # Not `read`, which leaks the memory of its result if the stream turns out to be damaged.
            while (part := stream.read_buffer(PIECE_BYTES)).size:
                left_bytes -= part.size
                if left_bytes < 0:
                    raise TooLarge
                parts.append(part)
    except OSError as error:
        if _NO_MEMORY in str(error):
            raise MemoryError(str(error)) from error
        raise
    return b"".join(parts)
