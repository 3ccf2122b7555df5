"""Kafka records as columns: their schema, and the bytes from which the checksum of a range is computed.

Canonical bytes of a record, big-endian; those of several records follow one another:

==================  =====  ==========================================
field               bytes  meaning
==================  =====  ==========================================
offset              i64
leader epoch        i32    -1: null
timestamp           i64    ms; -1: null
timestamp type      i8     0 create time, 1 log append time
key length          i32    -1: null
value length        i32    -1: null
headers length      i32    bytes
key, value          n
headers             n      each: i32 length of the key, i32 length
                           of the value (-1: null), key, value
==================  =====  ==========================================

They depend only on the records, not on the batches they came in, their compression, or the chunks they are read in;
all of these may change without any record changing. Topic and partition are the log's.

Columns of a record's time:

=====================  =========================  ======================
time in ms             timestamp                  timestamp_type
=====================  =========================  ======================
-1                     null                       create_time
years 1 to 9999        the time                   create_time
anything else          null                       create_time <the time>
=====================  =========================  ======================

With log append time it is ``log_append_time``. Nothing checks what a producer gives for a time: nanoseconds are taken
by brokers like any other number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.columns import (
    Flags,
    Ints,
    edges,
    fit,
    grouped,
    joined,
    lengths,
    of_fixed_size,
    pairs,
    sizes,
    time_column,
    whole_bytes,
)
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import KAFKA_SCHEMA

UNLOCATED_SCHEMA: Final = pa.schema([field for field in KAFKA_SCHEMA if field.name not in ("topic", "partition")])
"""The columns that a record itself provides."""

CREATE_TIME: Final = "create_time"
LOG_APPEND_TIME: Final = "log_append_time"
_NO_TIMESTAMP: Final = -1
_US_PER_MS: Final = 1000

_HEAD: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("leader_epoch", ">i4"),
        ("timestamp_ms", ">i8"),
        ("timestamp_type", "i1"),
        ("key_length", ">i4"),
        ("value_length", ">i4"),
        ("headers_length", ">i4"),
    ]
)
_HEADER_HEAD: Final = np.dtype([("key_length", ">i4"), ("value_length", ">i4")])


def located(records: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
    """Add topic and partition to `records` of UNLOCATED_SCHEMA, which makes KAFKA_SCHEMA."""
    return located_each(records, [(topic, partition)], [len(records)])


def located_each(records: pa.RecordBatch, places: Sequence[tuple[str, int]], counts: Sequence[int]) -> pa.RecordBatch:
    """Like `located`, for the records of several partitions: `counts` are how many are of each of `places`, in order.

    ``sum(counts) == len(records)``.
    """
    topics = [topic for topic, _ in places]
    place = {
        "topic": pa.array(topics, pa.string()).take(pa.array(np.repeat(np.arange(len(topics)), counts))),
        "partition": pa.array(np.repeat(np.array([at for _, at in places], np.int32), counts)),
    }
    columns = [place[name] if name in place else records.column(name) for name in KAFKA_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=KAFKA_SCHEMA)


def canonical(records: pa.RecordBatch) -> bytes:
    """Return the canonical bytes of `records` (the columns of UNLOCATED_SCHEMA, and any others).

    ``canonical(a) + canonical(b) == canonical(a and b in one batch)``. Raises CorruptRecord for a row that no record
    can have made.
    """
    return canonical_and_edges(records)[0]


def canonical_and_edges(records: pa.RecordBatch) -> tuple[bytes, list[int]]:
    """Like `canonical`, and where in it each record begins, and the last one ends."""
    key, value = records.column("key"), records.column("value")
    headers = _header_bytes(records.column("headers"))
    heads = np.empty(len(records), _HEAD)
    heads["offset"] = records.column("offset")
    heads["leader_epoch"] = records.column("leader_epoch").fill_null(-1)
    heads["timestamp_ms"], heads["timestamp_type"] = times_of(records)
    heads["key_length"] = lengths(key)
    heads["value_length"] = lengths(value)
    heads["headers_length"] = lengths(headers)
    whole = joined(of_fixed_size(heads), key, value, headers)
    return whole_bytes(whole), edges(whole).tolist()


def canonical_lengths(records: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return how many canonical bytes each of `records` takes; needs key, value and headers."""
    key, value, headers = (records.column(name) for name in ("key", "value", "headers"))
    found = sizes(key) + sizes(value) + _HEAD.itemsize
    if len(headers.flatten()):
        found += sizes(_header_bytes(headers))
    return found


def _header_bytes(headers: pa.Array) -> pa.Array:
    """Return the canonical bytes of each row's headers as one binary value."""
    key, value = pairs(headers)
    heads = np.empty(len(key), _HEADER_HEAD)
    heads["key_length"] = lengths(key)
    heads["value_length"] = lengths(value)
    return grouped(joined(of_fixed_size(heads), key, value), headers)


def time_columns(times_ms: Ints, is_append_time: Flags) -> tuple[pa.Array, pa.Array]:
    """Return `timestamp` and `timestamp_type` of records with these times."""
    has_time, fits = times_ms != _NO_TIMESTAMP, fit(times_ms)
    kinds = pc.if_else(pa.array(is_append_time), LOG_APPEND_TIME, CREATE_TIME)
    is_kept = has_time & ~fits
    if is_kept.any():
        numbers = pa.array(times_ms, mask=~is_kept).cast(pa.string())
        kinds = pc.coalesce(pc.binary_join_element_wise(kinds, numbers, " "), kinds)
    return time_column(times_ms, has_time & fits), kinds


def times_of(records: pa.RecordBatch) -> tuple[Ints, Flags]:
    """Return the time of each record in ms, -1 for none, and whether it is log append time.

    Raises CorruptRecord for a `timestamp_type` that `time_columns` cannot have made.
    """
    said = records.column("timestamp_type").fill_null("").dictionary_encode()
    try:
        kinds = [_kind(text) for text in said.dictionary.to_pylist()]
        kept_ms = np.array([time_ms for _, time_ms in kinds], np.int64)
    except (ValueError, OverflowError) as error:
        raise CorruptRecord(
            "the row is no record",
            offset=Offset(records.column("offset")[0].as_py()),
            expected=f"timestamp_type {CREATE_TIME} or {LOG_APPEND_TIME}, in this row or one of the next",
            found=error,
            hint="The row was changed since it was replicated: replicate its range anew.",
        ) from error
    times_ms = pc.divide(records.column("timestamp").cast(pa.int64()), _US_PER_MS)
    rows = said.indices.to_numpy()
    is_append_time = np.array([kind == LOG_APPEND_TIME for kind, _ in kinds], np.bool_)
    return pc.coalesce(times_ms, pa.array(kept_ms[rows])).to_numpy(), is_append_time[rows]


def _kind(said: str) -> tuple[str, int]:
    """Return what the text says: the kind of the time, and the time that it keeps. Raises ValueError."""
    kind, separator, number = said.partition(" ")
    if kind not in (CREATE_TIME, LOG_APPEND_TIME) or (separator and f"{int(number)}" != number):
        raise ValueError(repr(said))
    return kind, int(number) if separator else _NO_TIMESTAMP
