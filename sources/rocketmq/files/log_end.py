"""The end of a commit log's data, as its broker finds it when it recovers: the first place without a sound record.

A segment file is allocated whole and zeroed, so its length says nothing. And what stands behind the end is no data,
whatever it looks like: after a crash a broker ends its log at the first record that is not sound, keeps the bytes
behind it, and writes over them later. Only the newest file can have such an end: a broker that ends its log in a file
deletes the later ones. So a later file that begins with a sound record proves that the log goes on there, and that what
is wrong before it is damage.

The broker appends while we look, its bytes arrive in pieces, and a look may see half a record. So a look gives the end
it can prove, and a *doubt*: the error for the bytes after that end, which may still turn out to be a record in the
making. The caller decides how long a doubt may last.

A broker that was killed reads its newest file from record to record (CommitLog.recoverAbnormally,
checkMessageAndReturnSize). So do we, by its own checks: magic, size, place, the sum of the parts, the CRC of the body.
What it cut off may join the new records by chance, if they are as long as the old ones. Only the store time tells: a
broker takes it while it holds the lock of the append, so it never decreases along a log unless the clock is set back.

What is proven: every message on the way is whole, and the last byte of the last one has arrived. It was
not stored before one in front of it; or else sound records now stand where there was nothing when an earlier look ended
there. A broker writes only at its end, so then all before is its log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.files.segment_files import Segment, SegmentMap, mapped
from sources.rocketmq.files.segment_search import SegmentSearch, corrupt, head_size, in_file
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.commitlog import Limits, Message, decode
from sources.rocketmq.format.layout import (
    BODY_LENGTH,
    BORN_HOST_IPV6,
    HEAD,
    LEAD,
    LEAD_AT,
    PROPERTIES_LENGTH,
    STORE_HOST_IPV6,
    STORE_TIMESTAMP,
    TAIL,
    TOPIC_LENGTH,
    host_bytes,
)

NOWHERE = Offset(0)
NEVER_MS: Final = -(2**63)
"""A store time before all others."""
_FORGET_BYTES = 4 * 1024 * 1024  # how much of a file is touched before its pages are released
_CUT_OFF_HINT = (
    "Either the broker cut this record off when it recovered, and wrote the one in front of it since; or its clock was "
    "set back. It is read as soon as another record follows it, or a later file."
)


_CHECKED = struct.Struct(
    f"{HEAD.format}"
    "i"  # body CRC
    f"{LEAD_AT.offset - LEAD_AT.queue_id}x"
    "q"  # physical offset
    "i"  # sys_flag
)
_HOSTS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6


def _places(hosts: int) -> tuple[int, int]:
    """At which byte of a record with these host bits the store timestamp stands, and the body's length."""
    stored_at = LEAD.size + host_bytes(hosts & BORN_HOST_IPV6)
    return stored_at, stored_at + STORE_TIMESTAMP.size + host_bytes(hosts & STORE_HOST_IPV6) + TAIL.size


_PLACES: Final = {hosts: _places(hosts) for hosts in (0, BORN_HOST_IPV6, STORE_HOST_IPV6, _HOSTS)}


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look: data is proven up to `end`, a record boundary; `doubt` is what is wrong there.

    `latest_ms` is the latest store time of what was hopped over and is proven. `free_from` is where sound records end
    and nothing follows; None if something does.
    """

    end: Offset
    doubt: CorruptRecord | None = None
    latest_ms: int = NEVER_MS
    free_from: Offset | None = None


def newest(segments: Sequence[Segment], limits: Limits) -> int:
    """Return the index of the newest file that begins with a sound record; 0 if none does.

    Raises FileNotFoundError if one of the files is deleted meanwhile, SegmentError if one changes its length.
    """
    for index in reversed(range(1, len(segments))):
        if segments[index].has_data():
            with mapped(segments[index]) as file:
                if SegmentSearch(file, limits).size_if_sound(segments[index].start):
                    return index
    return 0


def look(
    segments: Sequence[Segment], start: Offset, limits: Limits, before: Look | None = None, trusted: Offset = NOWHERE
) -> Look:
    """Find the end of the data from `start` on, a record boundary inside the first of `segments`, the newest file.

    `before` is an earlier look. Up to `trusted`, an end that was proven once, times are not compared. Raises as
    `newest` does.
    """
    found = Look(start, latest_ms=before.latest_ms if before is not None and before.end == start else NEVER_MS)
    free_from = None if before is None else before.free_from
    for index, segment in enumerate(segments):
        with mapped(segment) as file:
            hopped = _hop(file, max(start, segment.start), limits.max_record_bytes, found.latest_ms, trusted)
            found = _seen(file, hopped, limits, free_from)
        if found.doubt is not None:
            return found
        if found.end < segment.end:
            return replace(found, doubt=_data_beyond(found.end, segment, segments[index + 1 :]))
    return found


def _seen(file: SegmentMap, hopped: Hopped, limits: Limits, free_from: Offset | None) -> Look:
    """What a look saw that has come so far."""
    found = _behind(file, hopped.end, limits)
    torn = None if hopped.last is None else _wrong(file, hopped.last, hopped.end, limits)
    if hopped.last is not None and torn is not None:
        found = Look(hopped.last, torn)
    if hopped.in_order >= min(found.end, hopped.end):
        return replace(found, latest_ms=hopped.latest_ms)
    if free_from is not None and file.segment.start <= free_from < found.end:
        return replace(found, latest_ms=hopped.last_ms)
    doubt = _stored_before(file.segment, hopped)
    return replace(found, end=hopped.in_order, doubt=doubt, latest_ms=hopped.latest_ms)


def _behind(file: SegmentMap, at: Offset, limits: Limits) -> Look:
    """Look at what stands at `at`, behind the messages."""
    with file.rest(at) as rest:
        try:
            size = head_size(file.segment, rest, at, limits)
        except CorruptRecord as error:
            return Look(at, error)
        if not size:
            doubt = _data_after_zeros(file.segment, rest, at, limits)
            return Look(at, doubt, free_from=at if doubt is None else None)
    if at + size == file.segment.end:  # only a blank reaches the end of its file
        return Look(file.segment.end)
    return Look(at, _wrong(file, at, Offset(at + size), limits))  # or a message that has arrived since the hop


def _hop(file: SegmentMap, start: Offset, max_size: int, latest_ms: int, trusted: Offset) -> Hopped:
    """Hop from `start` over all sound messages."""
    at, last, in_order, last_ms = start, None, start, latest_ms
    with file.rest(file.segment.start) as view:
        while True:
            enough = at + _FORGET_BYTES
            hopped = hop_sound(view, file.segment.start, at, enough, max_size, latest_ms, trusted)
            latest_ms = hopped.latest_ms
            if hopped.last is not None:
                last, last_ms = hopped.last, hopped.last_ms
            if hopped.in_order > at:
                in_order = hopped.in_order
            at = hopped.end
            if at < enough:
                return Hopped(at, last, in_order, latest_ms, last_ms)
            file.forget(at)


def _wrong(file: SegmentMap, at: Offset, end: Offset, limits: Limits) -> CorruptRecord | None:
    """Return what is wrong with the message ``[at, end)``: a contradiction, or a part that has not arrived."""
    with file.view(at, end) as view:
        try:
            record = decode(view, 0, at, limits)
        except CorruptRecord as error:
            return in_file(error, file.segment)
        if not isinstance(record, Message) or record.size != end - at:  # its head has changed since the hop
            return corrupt(file.segment, at, "the head of the record changes", f"{end - at} bytes", "another size")
        if record.properties and not view[-1]:
            problem = "the end of the record has not arrived"
            return corrupt(file.segment, at, problem, "properties that end in their last character", "a zero byte")
    return None


def _stored_before(segment: Segment, hopped: Hopped) -> CorruptRecord:
    return corrupt(
        segment,
        hopped.in_order,
        "the record was stored before one in front of it",
        f"a store timestamp of {hopped.latest_ms} ms or later",
        "an earlier one",
        _CUT_OFF_HINT,
    )


def _data_after_zeros(segment: Segment, rest: memoryview, at: Offset, limits: Limits) -> CorruptRecord | None:
    """Check that zeros follow for a record's size: a record may arrive back to front, or its head may be lost."""
    following = np.frombuffer(rest[: limits.max_record_bytes], dtype=np.uint8)
    if not following.any():
        return None
    distance = int((following != 0).argmax())
    return corrupt(
        segment, at, "the data ends here, but more follows", "zeros only", f"other bytes from offset {at + distance} on"
    )


def _data_beyond(end: Offset, segment: Segment, later: Sequence[Segment]) -> CorruptRecord | None:
    used = next((segment for segment in later if segment.has_data()), None)
    if used is None:
        return None
    problem = "the data of a file ends without a blank record, and a later file has data: a hole"
    return corrupt(segment, end, problem, f"zeros in {used.path.name} too", "a record")


class Hopped(NamedTuple):
    """Sound messages join up to `end`; the last of them starts at `last`, None if there is none.

    `in_order` is the end of the last one that was not stored before any other in front of it, at `latest_ms`. The last
    of all was stored at `last_ms`.
    """

    end: Offset
    last: Offset | None
    in_order: Offset
    latest_ms: int
    last_ms: int


def hop_sound(
    view: memoryview, base: int, start: Offset, enough: int, max_size: int, latest_ms: int, trusted: Offset
) -> Hopped:
    """Hop from offset `start` over sound messages to the first one at or after `enough`, or to something else.

    `view` is a whole file, whose first byte is offset `base`. `latest_ms` is the latest store time before `start`. Up
    to `trusted` all are taken to be in order. This is a hot loop: a gibibyte of small messages has millions.
    """
    unpack, unpack_time, unpack_length = _CHECKED.unpack_from, STORE_TIMESTAMP.unpack_from, BODY_LENGTH.unpack_from
    position, last, in_order, most = start - base, None, start - base, len(view) - HEAD.size
    stored_ms = latest_ms
    stop, trusted_end = min(enough - base, most - LEAD.size), trusted - base
    while position < stop:
        size, magic, crc, place, sys_flag = unpack(view, position)
        end = position + size
        stored_at, length_at = _PLACES[sys_flag & _HOSTS]
        if place != base + position or magic not in TOPIC_LENGTH or not length_at < size <= max_size or end > most:
            break
        (body_bytes,) = unpack_length(view, position + length_at)
        body_at = position + length_at + BODY_LENGTH.size
        body_end = body_at + body_bytes
        if body_bytes < 0 or not _ends_at(view, body_end, end, TOPIC_LENGTH[magic]):
            break
        if body_crc(view[body_at:body_end]) != crc:
            break
        (stored_ms,) = unpack_time(view, position + stored_at)
        last, position = position, end
        if stored_ms >= latest_ms or end <= trusted_end:
            latest_ms, in_order = stored_ms, end
    found_last = None if last is None else Offset(base + last)
    return Hopped(Offset(base + position), found_last, Offset(base + in_order), latest_ms, stored_ms)


def _ends_at(view: memoryview, at: int, end: int, topic_length: struct.Struct) -> bool:
    """Whether topic and properties, from index `at` on, end at `end`."""
    topic_at = at + topic_length.size
    if topic_at + PROPERTIES_LENGTH.size > end:
        return False
    (topic_bytes,) = topic_length.unpack_from(view, at)
    length_at = topic_at + topic_bytes
    if topic_bytes < 0 or length_at + PROPERTIES_LENGTH.size > end:
        return False
    (properties_bytes,) = PROPERTIES_LENGTH.unpack_from(view, length_at)
    return bool(length_at + PROPERTIES_LENGTH.size + properties_bytes == end)
