"""Encodes records as the batches of a segment file, format 2, as a broker keeps them.

This is the inverse of `sources.kafka.format.batches`. A Kafka batch says once what its records share. So a batch ends
where the leader epoch or the type of the timestamps changes or, with the broker's own time, the time; and after about
1 MB, the limit of producers and brokers. Rows do not tell which records were together in a batch, its compression and
its producer, and no reader depends on these.

Offsets may have no record, inside batches and between them. Only the end of a log must be stated, because a broker goes
on behind the last batch that it finds: an empty batch, as Kafka's own cleaner leaves it, covers the offsets there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.columns import Flags, Ints, edges, grouped, joined, lengths, pairs
from sources.kafka.format.batch_header import NO_EPOCH, NO_TIMESTAMP, Head
from sources.kafka.format.columns import canonical_lengths, times_of
from sources.kafka.format.record_format import MAX_VARINT_BYTES
from sources.offsets import Offset, OffsetRange

_BITS: Final = 7
_MORE: Final = 0x80
BATCH_BYTES: Final = 1_000_000
"""A limit for the records' canonical bytes, which are more. Brokers accept 1,048,588 bytes by default."""
MAX_DELTA: Final = 2**31 - 1
"""The largest distance of an offset from that of its batch, and of a batch from the beginning of its segment."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch and the offsets from its first record to behind its last; `whole` are its bytes."""

    covered: OffsetRange
    epoch: int | None
    whole: bytes


def encode(records: pa.RecordBatch) -> Iterator[EncodedBatch]:
    """Yield the batches of `records`, which have the columns of UNLOCATED_SCHEMA and ascending offsets."""
    if not len(records):
        return
    columns = _Columns.of(records)
    starts = columns.starts(canonical_lengths(records))
    encoded = _records(records, columns, starts)
    at, data = edges(encoded), memoryview(encoded.buffers()[2])
    for first, stop in pairwise(starts):
        head = columns.head(first, stop)
        epoch = None if head.leader_epoch == NO_EPOCH else head.leader_epoch
        yield EncodedBatch(head.covered, epoch, head.batch(data[at[first] : at[stop]]))


def empty_batch(end: Offset, start: Offset, epoch: int | None) -> EncodedBatch:
    """Return a batch without records that leads up to `end`, from `start` on if that is near enough."""
    covered = OffsetRange(Offset(max(start, end - MAX_DELTA)), end)
    head = Head(
        covered=covered,
        leader_epoch=NO_EPOCH if epoch is None else epoch,
        has_log_append_time=False,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        count=0,
    )
    return EncodedBatch(covered, epoch, head.batch(memoryview(b"")))


@dataclass(frozen=True, slots=True)
class _Columns:
    """What decides where batches end, and what their heads say."""

    offsets: Ints
    epochs: Ints
    times_ms: Ints
    is_append_time: Flags

    @classmethod
    def of(cls, records: pa.RecordBatch) -> _Columns:
        times_ms, is_append_time = times_of(records)
        return cls(
            records.column("offset").to_numpy(),
            records.column("leader_epoch").fill_null(NO_EPOCH).to_numpy(),
            times_ms,
            is_append_time,
        )

    def starts(self, sizes: Ints) -> list[int]:
        """Return where the batches start and the last one ends; `sizes` are those of the records."""
        ends, changes = np.cumsum(sizes), [*self._changes().tolist(), len(self.offsets)]
        found = [0]
        while (at := found[-1]) < len(self.offsets):
            by_size = np.searchsorted(ends, ends[at] - sizes[at] + BATCH_BYTES, side="right")
            by_offset = np.searchsorted(self.offsets, self.offsets[at] + MAX_DELTA, side="right")
            by_change = changes[bisect_right(changes, at)]
            found.append(min(max(int(by_size), at + 1), int(by_offset), by_change))
        return found

    def head(self, first: int, stop: int) -> Head:
        return Head(
            covered=OffsetRange(Offset(int(self.offsets[first])), Offset(int(self.offsets[stop - 1]) + 1)),
            leader_epoch=int(self.epochs[first]),
            has_log_append_time=bool(self.is_append_time[first]),
            base_timestamp_ms=int(self.times_ms[first]),
            max_timestamp_ms=int(self.times_ms[first:stop].max()),
            count=stop - first,
        )

    def _changes(self) -> Ints:
        """Return the rows that cannot be in one batch with the row before."""
        is_new = _differs(self.epochs) | _differs(self.is_append_time)
        is_new |= _differs(self.times_ms) & self.is_append_time[1:]
        return np.flatnonzero(is_new) + 1


def _differs(column: Ints | Flags) -> Flags:
    """Return which values, except the first, differ from the one before."""
    return np.asarray(column[1:] != column[:-1], np.bool_)


def _records(records: pa.RecordBatch, columns: _Columns, starts: list[int]) -> pa.Array:
    """Return each row's record as one binary value (`sources.kafka.format.record_format`)."""
    first = np.repeat(starts[:-1], np.diff(starts))
    key, value, headers = (records.column(name) for name in ("key", "value", "headers"))
    bodies = joined(
        pa.scalar(b"\0", pa.binary()),  # attributes; not made at import, because pyarrow imports pandas for it
        varints(columns.times_ms - columns.times_ms[first]),
        varints(columns.offsets - columns.offsets[first]),
        *_counted(key),
        *_counted(value),
        varints(pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)),
        _headers(headers),
    )
    return joined(*_counted(bodies))


def _headers(headers: pa.Array) -> pa.Array:
    """Return each row's headers as one binary value, without their number."""
    key, value = pairs(headers)
    return grouped(joined(*_counted(key), *_counted(value)), headers)


def _counted(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the length of each value, and the values themselves."""
    return varints(lengths(texts).to_numpy().astype(np.int64)), texts


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
