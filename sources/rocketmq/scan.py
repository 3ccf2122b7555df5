"""Many records at once, first half: where each field of each record is, every check done. numpy, no Spark.

Records are found by hopping from head to head, one step of a loop each. Everything after that, the check of the heads
first, works on whole columns: the fields of fixed size are gathered by index, big-endian, and the spans of body, topic
and properties follow from the lengths. The checks are those of `checks`, over columns; they only say *that* something
is wrong. What is wrong, and in which record first, is left to `commitlog.decode`, so that both readers fail with the
same words.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from isal.isal_zlib import crc32

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.checks import MAX_TIMESTAMP_MS, check_head
from sources.rocketmq.layout import (
    BORN_HOST_IPV6,
    HEAD,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    LEAD,
    PROPERTIES_LENGTH,
    STORE_HOST_IPV6,
    STORE_TIMESTAMP,
    V1,
    V2,
    Limits,
    minimum_size,
)
from sources.spans import Bytes, Flags, Ints, Rows, gather

# layout.LEAD, layout.TAIL and the length of the body after it, field by field.
LEAD_FIELDS = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
_HEAD_FIELDS = np.dtype(LEAD_FIELDS.descr[:2])
TAIL_FIELDS = np.dtype([("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_length", ">i4")])
_SIZE = struct.Struct(">I")  # of a sound head what ">i" is; of no head a way back
_INT64 = np.dtype(">i8")
_INT16 = np.dtype(">i2")


class SuspectRecord(Exception):
    """Some record fails a check. Never leaves this package's decoders."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The records that start in a range and are wholly there, [starts, ends). `end` is where the last one ends.

    `error` is what is wrong with the head at `end`, if it is wrong: that comes after whatever is wrong before it.
    """

    starts: Ints
    is_blank: Flags
    end: int
    error: CorruptRecord | None

    @property
    def ends(self) -> Ints:
        return np.append(self.starts[1:], self.end)


def hop(view: memoryview, start: Offset, stop: Offset, limits: Limits) -> Heads:
    """The records of `view`, which begins with byte `start` of the log, that start before `stop`."""
    places = _hops(view, min(stop - start, len(view) - HEAD.size + 1))
    count = len(places) - 1
    if not count:
        return Heads(places[:0], np.zeros(0, np.bool_), 0, None)
    heads = gather(np.frombuffer(view, np.uint8), places[:-1], _HEAD_FIELDS)
    is_message, error = _is_message(heads["size"], heads["magic"], limits), None
    for number in np.flatnonzero(~is_message).tolist():
        size, magic = heads[number].tolist()
        error = _head_error(size, magic, start + int(places[number]), limits)
        if error is not None:
            count = number
            break
    if places[count] > len(view):
        count -= 1
    return Heads(places[:count], ~is_message[:count], int(places[count]), error)


def _hops(view: memoryview, stop: int) -> Ints:
    """Where records start, below `stop`, and where the last one ends, if their sizes are true: nothing is checked yet.

    A size below that of a head, which no record has, ends it.
    """
    unpack, at, size = _SIZE.unpack_from, 0, HEAD.size
    places: list[int] = []
    add = places.append
    while at < stop and size >= HEAD.size:
        add(at)
        (size,) = unpack(view, at)
        at += size
    add(at)
    return np.array(places, np.int64)


def _is_message(sizes: Rows, magics: Rows, limits: Limits) -> Flags:
    """Of which heads nothing more has to be asked. The others are blanks or wrong."""
    is_v1 = magics == V1
    least = np.where(is_v1, minimum_size(V1, 0), minimum_size(V2, 0))
    is_message: Flags = (is_v1 | (magics == V2)) & (sizes >= least) & (sizes <= limits.max_record_bytes)
    return is_message


def _head_error(size: int, magic: int, offset: int, limits: Limits) -> CorruptRecord | None:
    try:
        check_head(size, magic, offset, limits)
    except CorruptRecord as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class Messages:
    """The message records of a buffer, checked, as columns. Spans are indexes into the buffer, ends exclusive."""

    starts: Ints
    lead: Rows
    tail: Rows
    store_timestamp_ms: Ints
    born_host_at: Ints
    store_host_at: Ints
    body_starts: Ints
    body_ends: Ints
    topic_starts: Ints
    topic_ends: Ints
    properties_starts: Ints
    properties_ends: Ints


def scan(view: memoryview, starts: Ints, ends: Ints, offset: Offset) -> Messages:
    """The message records of `view`, byte `offset` of the log, that lie at [starts, ends) and have checked heads.

    There is at least one. Raises SuspectRecord where a record contradicts itself or its place.
    """
    raw = np.frombuffer(view, np.uint8)
    lead = gather(raw, starts, LEAD_FIELDS)
    _require(lead["offset"] == offset + starts)
    born_host_at = starts + LEAD.size
    store_timestamp_at = born_host_at + _host_bytes(lead, BORN_HOST_IPV6)
    store_host_at = store_timestamp_at + STORE_TIMESTAMP.size
    tail_at = store_host_at + _host_bytes(lead, STORE_HOST_IPV6)
    body_starts = tail_at + TAIL_FIELDS.itemsize
    topic_length_bytes = 1 + (lead["magic"] == V2)
    # What is left for body, topic and properties: everything but the fields of fixed size and the lengths.
    room = ends - body_starts - topic_length_bytes - PROPERTIES_LENGTH.size
    _require(room >= 0)

    tail = gather(raw, tail_at, TAIL_FIELDS)
    body_ends = body_starts + _fitting(tail["body_length"], room)
    room -= tail["body_length"]
    topic_starts = body_ends + topic_length_bytes
    topic_length = _fitting(_topic_length(raw, body_ends, topic_length_bytes), room)
    topic_ends = topic_starts + topic_length
    _require(gather(raw, topic_ends, _INT16) == room - topic_length)

    store_timestamp_ms = gather(raw, store_timestamp_at, _INT64).astype(np.int64)
    for times_ms in (store_timestamp_ms, lead["born_timestamp"]):
        _require((times_ms >= -MAX_TIMESTAMP_MS) & (times_ms <= MAX_TIMESTAMP_MS))
    _require(_body_crcs(view, body_starts, body_ends) == lead["body_crc"])
    return Messages(
        starts=starts,
        lead=lead,
        tail=tail,
        store_timestamp_ms=store_timestamp_ms,
        born_host_at=born_host_at,
        store_host_at=store_host_at,
        body_starts=body_starts,
        body_ends=body_ends,
        topic_starts=topic_starts,
        topic_ends=topic_ends,
        properties_starts=topic_ends + PROPERTIES_LENGTH.size,
        properties_ends=ends,
    )


def _require(holds: Flags) -> None:
    if not holds.all():
        raise SuspectRecord


def _host_bytes(lead: Rows, ipv6: int) -> Ints:
    return np.where(lead["sys_flag"] & ipv6, IPV6_HOST_BYTES, IPV4_HOST_BYTES)


def _fitting(lengths: Ints, room: Ints) -> Ints:
    _require((lengths >= 0) & (lengths <= room))
    return lengths


def _topic_length(raw: Bytes, at: Ints, width: Ints) -> Ints:
    """V1: one signed byte. V2: two."""
    first = raw[at].view(np.int8).astype(np.int64)
    return np.where(width == 1, first, first * 256 + raw[at + 1])


def _body_crcs(view: memoryview, starts: Ints, ends: Ints) -> Ints:
    crcs = [crc32(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(crcs, np.int64) & 0x7FFFFFFF
