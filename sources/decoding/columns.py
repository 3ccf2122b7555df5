"""Columns of bytes, without a Python object per row: cut out of a buffer, joined row by row; and columns of times.

A table takes the years 1 to 9999, UTC. A timestamp column has room for 292,000 years to either side of 1970, but
Python, and so pyarrow, Polars and PySpark's `collect`, fail on the whole column if one value lies outside the years 1
to 9999. What a clock says there is the producer's business and no damage: the row has null instead, and the decoder
keeps the number elsewhere in the row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sources.records import TIMESTAMP

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


FIRST_MS: Final = -62_135_596_800_000
"""The beginning of year 1."""

END_MS: Final = 253_402_300_800_000
"""The beginning of year 10000."""

_US_PER_MS: Final = 1000


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Join the bytes of each part row by row, nothing for a null; a scalar is the same in each row."""
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def of_fixed_size(rows: npt.NDArray[Any]) -> pa.Array:
    """Return the bytes of each row, of a structured or a number type, in place."""
    ends = np.arange(0, (len(rows) + 1) * rows.itemsize, rows.itemsize, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(rows.view(np.uint8))])


def lengths(texts: pa.Array) -> pa.Array:
    """Return the length of each text; -1 for a null."""
    return pc.binary_length(texts).fill_null(-1)


def sizes(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return the length of each text; 0 for a null."""
    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64)
    at = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    found = np.diff(at).astype(np.int64)
    if texts.null_count:
        found[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def pairs(headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return keys and values of all headers, one after the other, as bytes."""
    flat = headers.flatten()
    if not len(flat):
        return pa.array([], pa.binary()), pa.array([], pa.binary())
    key, value = (part.cast(pa.binary()) for part in flat.flatten())
    return key, value


def grouped(flat: pa.Array, lists: pa.Array) -> pa.Array:
    """Join the elements of each row of `lists` to one binary value; `flat` has their bytes, row after row."""
    if not len(flat):
        return pa.repeat(pa.scalar(b"", pa.binary()), len(lists))
    counts = pc.list_value_length(lists).fill_null(0)
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    at = edges(flat)[ends]
    return pa.Array.from_buffers(pa.binary(), len(lists), [None, pa.py_buffer(at), flat.buffers()[2]])


def edges(texts: pa.Array) -> npt.NDArray[np.int32]:
    """Return where each value of a whole array begins in its bytes, and where the last one ends."""
    if not len(texts):
        return np.zeros(1, np.int32)
    return np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]


def whole_bytes(texts: pa.Array) -> bytes:
    """Return the values of a whole array, one after the other."""
    end = int(edges(texts)[-1])
    return bytes(memoryview(texts.buffers()[2])[:end]) if end else b""


def fit(times_ms: Ints) -> Flags:
    """Which of `times_ms`, counted from 1970, a table takes."""
    return np.asarray((times_ms >= FIRST_MS) & (times_ms < END_MS), np.bool_)


def time_column(times_ms: Ints, wanted: Flags) -> pa.Array:
    """Return the times as a column; null where not `wanted`, which no time may be that does not `fit`."""
    return pa.array(np.where(wanted, times_ms, 0) * _US_PER_MS, mask=~wanted).cast(TIMESTAMP)
