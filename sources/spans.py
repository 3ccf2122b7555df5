"""Gathering fields by index and cutting spans out of a buffer, without a Python object per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[Any]  # of a big-endian or structured dtype


def gather(raw: Bytes, at: Ints, fields: np.dtype[Any]) -> Rows:
    """The bytes of `fields` at each index of `at`, one row an index. `raw` holds all of them."""
    windows = np.lib.stride_tricks.sliding_window_view(raw, fields.itemsize)
    rows: Rows = windows[at].view(fields)[:, 0]
    return rows


def cut(kind: pa.DataType, buffer: pa.Buffer, starts: Ints, ends: Ints, wanted: Flags | None = None) -> pa.Array:
    """The bytes [start, end) of `buffer` as an array of `kind` (binary, or string of checked text), one row a span.

    Spans are in order and do not overlap, and none reaches beyond 2 GiB. Where not `wanted` the row is null. Only the
    spans are copied: a view of the whole buffer, whose even rows are the spans and whose odd rows are the gaps between
    them, is laid over it, and the even rows are taken.
    """
    if not len(starts):
        return pa.array([], kind)
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    evens = np.arange(0, len(offsets), 2, dtype=np.int32)
    return _laid_over(kind, buffer, offsets).take(pa.array(evens, mask=None if wanted is None else ~wanted))


def cut_pairs(
    kind: pa.DataType, buffer: pa.Buffer, starts: Ints, middles: Ints, ends: Ints
) -> tuple[pa.Array, pa.Array]:
    """The same of two spans a row, [start, middle) and [middle + 1, end): what is left and right of one byte."""
    if not len(starts):
        return pa.array([], kind), pa.array([], kind)
    offsets = np.empty(4 * len(starts), np.int32)
    offsets[0::4] = starts
    offsets[1::4] = middles
    offsets[2::4] = middles + 1
    offsets[3::4] = ends
    laid_over = _laid_over(kind, buffer, offsets)
    lefts = np.arange(0, len(offsets), 4, dtype=np.int32)
    return laid_over.take(pa.array(lefts)), laid_over.take(pa.array(lefts + 2))


def _laid_over(kind: pa.DataType, buffer: pa.Buffer, offsets: npt.NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), buffer])
