"""The time of a Kafka record as the columns `timestamp` and `timestamp_type`, and back.

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

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.spans import Flags, Ints
from sources.decoding.times import fit, time_column
from sources.errors import CorruptRecord
from sources.offsets import Offset

CREATE_TIME: Final = "create_time"
LOG_APPEND_TIME: Final = "log_append_time"
_NO_TIMESTAMP: Final = -1
_US_PER_MS: Final = 1000


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
