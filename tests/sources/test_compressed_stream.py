"""What is special to streams of Arrow's; what becomes of bodies and batches is tested where these are."""

from __future__ import annotations

import gzip
import resource
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from sources.decoding.compressed_stream import PIECE_BYTES, decompressed

BODY = b"a body " * 100
STORED = {
    "gzip": gzip.compress(BODY), "lz4": lz4.frame.compress(BODY), "zstd": zstandard.ZstdCompressor().compress(BODY),
}  # fmt: skip


def writable_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


@pytest.mark.parametrize("codec", STORED)
def test_a_damaged_stream_leaves_no_memory_behind(codec: str) -> None:
    """A reader of Arrow's lost a piece for each: a producer could have filled a worker's memory."""
    times = 200

    def fail() -> None:
        with pytest.raises(OSError, match=r"(?i)decompress|truncated|lz4|zlib|zstd"):
            decompressed(STORED[codec][:-3], codec, 1 << 20)

    fail()
    before = writable_bytes()
    for _ in range(times):
        fail()
    assert writable_bytes() - before < times * PIECE_BYTES // 4
