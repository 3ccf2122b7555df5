"""Joins columns of bytes row by row: fields to records, headers to the records they belong to. Arrow, no loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Join the bytes of each part row by row, nothing for a null; a scalar is the same in each row."""
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def of_fixed_size(rows: npt.NDArray[Any]) -> pa.Array:
    buffers = [None, pa.py_buffer(rows.tobytes())]
    return pa.Array.from_buffers(pa.binary(rows.itemsize), len(rows), buffers).cast(pa.binary())


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
