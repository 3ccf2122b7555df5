"""Kafka records as columns: made of batches, and the bytes from which the checksum of a range is computed.

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

They depend only on the records, not on the batches they came in, their compression, or the chunks they are read in; all
of these may change without any record changing. Topic and partition are the log's.

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

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.columns import (
    Flags,
    Ints,
    cut,
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
from sources.kafka.format.batch_header import Batch
from sources.kafka.format.record_format import WRITTEN_SO, Records, Spans, read
from sources.offsets import Offset
from sources.records import HEADER, KAFKA_SCHEMA

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


def located(records: pa.RecordBatch, partitions: Sequence[tuple[str, int]], counts: Sequence[int]) -> pa.RecordBatch:
    """Add topic and partition to `records` of UNLOCATED_SCHEMA, which makes KAFKA_SCHEMA.

    `counts` are how many are of each of `partitions`, in order: ``sum(counts) == len(records)``.
    """
    topics = [topic for topic, _ in partitions]
    added = {
        "topic": pa.array(topics, pa.string()).take(pa.array(np.repeat(np.arange(len(topics)), counts))),
        "partition": pa.array(np.repeat(np.array([number for _, number in partitions], np.int32), counts)),
    }
    columns = [added[name] if name in added else records.column(name) for name in KAFKA_SCHEMA.names]
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


NO_RECORDS: Final = pa.RecordBatch.from_arrays(
    [pa.nulls(0, one.type) for one in UNLOCATED_SCHEMA], schema=UNLOCATED_SCHEMA
)

_OF_BATCH: Final = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset_delta", np.int64),
        ("leader_epoch", np.int32),
        ("base_timestamp_ms", np.int64),
        ("max_timestamp_ms", np.int64),
        ("has_log_append_time", np.bool_),
    ]
)
Rows = npt.NDArray[Any]  # of _OF_BATCH

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd"


def record_columns(batches: Sequence[Batch], bodies: Sequence[bytes | memoryview], most_headers: int) -> pa.RecordBatch:
    """Return the records of `batches`, in their order, which may be of several logs. `bodies` are the decompressed
    records of each batch.

    Raises CorruptRecord if a record contradicts itself or its batch; TooCostly for more than `most_headers`.
    """
    if not batches:
        return NO_RECORDS
    records = read(batches, bodies, most_headers)
    counts = np.array([batch.record_count for batch in batches])
    batch = np.repeat(np.array([_of(batch) for batch in batches], _OF_BATCH), counts)
    _check_offsets(records.offset_deltas, batch, np.cumsum(counts) - counts)
    timestamp, timestamp_type = time_columns(
        _times_ms(records.timestamp_deltas_ms, batch), batch["has_log_append_time"]
    )
    columns = {
        "offset": pa.array(batch["base_offset"] + records.offset_deltas),
        "leader_epoch": pa.array(batch["leader_epoch"], mask=batch["leader_epoch"] < 0),
        "timestamp": timestamp,
        "timestamp_type": timestamp_type,
        "key": _cut(records.buffer, records.keys),
        "value": _cut(records.buffer, records.values),
        "headers": _headers(records),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in UNLOCATED_SCHEMA.names], schema=UNLOCATED_SCHEMA)


def texts(keys: pa.Array) -> pa.Array:
    """Return header keys as text. Bytes that are not UTF-8 become U+FFFD, as in Java: one per half surrogate pair."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(key) for key in keys.to_pylist()], pa.string())


def _text(key: bytes) -> str:
    return _SURROGATE.sub(_REPLACEMENT.encode(), key).decode(errors="replace")


def _of(batch: Batch) -> tuple[int | bool, ...]:
    """Return a batch's values in the order of _OF_BATCH."""
    times_ms = (batch.base_timestamp_ms, batch.max_timestamp_ms)
    return batch.base_offset, batch.last_offset_delta, batch.leader_epoch, *times_ms, batch.has_log_append_time


def _check_offsets(deltas: Ints, batch: Rows, starts: Ints) -> None:
    """Check that each offset lies within its batch, which begins at one of `starts`, and above the record before."""
    least = np.append(0, deltas[:-1] + 1)
    least[starts[starts < len(deltas)]] = 0
    in_place = (least <= deltas) & (deltas <= batch["last_offset_delta"])
    if not in_place.all():
        row = int(np.argmin(in_place))
        raise CorruptRecord(
            "a record's offset is not behind the one before, within its batch",
            offset=Offset(int(batch["base_offset"][row])),
            found=(batch["base_offset"] + deltas)[row],
            hint=WRITTEN_SO,
        )


def _times_ms(deltas_ms: Ints, batch: Rows) -> Ints:
    """Return the time of each record; sums wrap around, as in Java."""
    own_ms = batch["base_timestamp_ms"] + deltas_ms
    return np.asarray(np.where(batch["has_log_append_time"], batch["max_timestamp_ms"], own_ms), np.int64)


def _cut(buffer: bytes, spans: Spans) -> pa.Array:
    return cut(pa.binary(), pa.py_buffer(buffer), spans.starts, spans.ends, spans.is_present)


def _headers(records: Records) -> pa.Array:
    starts = np.append(0, np.cumsum(records.header_counts)).astype(np.int32)
    entries = pa.StructArray.from_arrays(
        [texts(_cut(records.buffer, records.header_keys)), _cut(records.buffer, records.header_values)],
        fields=list(HEADER),
    )
    return pa.ListArray.from_arrays(pa.array(starts), entries)
