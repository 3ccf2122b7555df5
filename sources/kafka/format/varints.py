"""Encodes numbers as Kafka's records store them, many at once. `record_format` decodes them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from sources.decoding.spans import Ints
from sources.kafka.format.record_format import MAX_VARINT_BYTES

_BITS: Final = 7
_MORE: Final = 0x80


def varints(numbers: Ints) -> pa.Array:
    """Encode each number: zigzag, 7 bits per byte, the lowest first, all but the last byte with the top bit set."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    sizes = np.ones(len(numbers), np.int64)
    for byte in range(1, MAX_VARINT_BYTES):
        sizes += zigzag >= np.uint64(1 << _BITS * byte)
    edges = np.concatenate(([0], np.cumsum(sizes)))
    written = np.empty(edges[-1], np.uint8)
    rows = np.arange(len(numbers))
    for byte in range(MAX_VARINT_BYTES):
        rows = rows[sizes[rows] > byte]
        bits = (zigzag[rows] >> np.uint64(_BITS * byte)).astype(np.uint8) & (_MORE - 1)
        written[edges[rows] + byte] = bits | np.where(sizes[rows] > byte + 1, _MORE, 0)
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(written)]
    return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)
