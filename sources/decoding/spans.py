"""Reading bytes in place and cutting spans out of a buffer, without a Python object per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


def read_only(data: memoryview | pa.Buffer, kind: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    """Return `data` in place, as a read-only array of `kind`, whether or not `data` is writable."""
    values = np.frombuffer(data, kind)
    values.flags.writeable = False
    return values


def cut(
    kind: pa.DataType, buffer: pa.Buffer, starts: Ints | Int32s, ends: Ints | Int32s, wanted: Flags | None = None
) -> pa.Array:
    """Return the bytes [start, end) of `buffer` as an array of `kind` (binary, or string if checked), one row per span.

    Spans are in order, do not overlap, and end within 2 GiB. Rows that are not `wanted` are null. Only the spans are
    copied: a view is laid over the whole buffer, whose even rows are the spans and whose odd rows are the gaps between
    them, and the even rows are taken.
    """
    if not len(starts):
        return pa.array([], kind)
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    laid_over = pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), buffer])
    evens = np.arange(0, len(offsets), 2, dtype=np.int32)
    return laid_over.take(pa.array(evens, mask=None if wanted is None else ~wanted))
