"""The records of some batches as an Arrow batch of `columns.UNLOCATED_SCHEMA`, without an object per record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.decoding.columns import Ints, cut
from sources.errors import CorruptRecord
from sources.kafka.format.batch_header import Batch
from sources.kafka.format.columns import UNLOCATED_SCHEMA, time_columns
from sources.kafka.format.record_format import WRITTEN_SO, Records, Spans, read
from sources.offsets import Offset
from sources.records import HEADER

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
    edges = np.append(0, np.cumsum(records.header_counts)).astype(np.int32)
    pairs = pa.StructArray.from_arrays(
        [texts(_cut(records.buffer, records.header_keys)), _cut(records.buffer, records.header_values)],
        fields=list(HEADER),
    )
    return pa.ListArray.from_arrays(pa.array(edges), pairs)
