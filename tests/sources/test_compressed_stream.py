"""What is special to streams of Arrow's; what becomes of bodies and batches is tested where these are."""

from __future__ import annotations

import gzip
import tracemalloc

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from sources.decoding.compressed_stream import PIECE_BYTES, decompressed

BODY = b"a body " * 100
STORED = {
    "gzip": gzip.compress(BODY), "lz4": lz4.frame.compress(BODY), "zstd": zstandard.ZstdCompressor().compress(BODY),
}  # fmt: skip


def held_bytes() -> int:
    """What Python and Arrow hold, wherever the system puts it."""
    return tracemalloc.get_traced_memory()[0] + int(pa.total_allocated_bytes())


@pytest.mark.parametrize("codec", STORED)
def test_a_damaged_stream_leaves_no_memory_behind(codec: str) -> None:
    """A reader of Arrow's lost a piece for each: a producer could have filled a worker's memory."""
    times = 20
    tracemalloc.start()
    try:
        before = held_bytes()
        for _ in range(times):
            with pytest.raises(OSError, match=r"(?i)decompress|truncated|lz4|zlib|zstd"):
                decompressed(STORED[codec][:-3], codec, 1 << 20)
        assert held_bytes() - before < times * PIECE_BYTES // 4
    finally:
        tracemalloc.stop()
