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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.kafka.format.binary_columns import (
    edges,
    grouped,
    joined,
    lengths,
    of_fixed_size,
    pairs,
    sizes,
    whole_bytes,
)
from sources.kafka.format.time_columns import times_of
from sources.records import KAFKA_SCHEMA

UNLOCATED_SCHEMA: Final = pa.schema([field for field in KAFKA_SCHEMA if field.name not in ("topic", "partition")])
"""The columns that a record itself provides."""

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
