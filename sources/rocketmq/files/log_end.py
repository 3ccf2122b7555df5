"""The end of a commit log's data, as its broker finds it when it recovers: the first offset without a sound record.

A segment file is allocated whole and zeroed, so its length says nothing. And the bytes behind the end are no data,
whatever they look like: after a crash a broker ends its log at the first record that is not sound, keeps the bytes
behind it, and writes over them later. Only the newest file can have such an end: a broker that ends its log in a file
deletes the later ones. So a later file that begins with a sound record proves that the log goes on there, and that what
is wrong before it is damage.

The broker appends while we look, its bytes arrive in pieces, and a look may see half a record. So a look gives the end
it can prove, and a *doubt*: the error for the bytes after that end, which may still turn out to be a record in the
making. The caller decides how long a doubt may last.

A broker that was killed reads its newest file from record to record (CommitLog.recoverAbnormally,
checkMessageAndReturnSize). So do we, by its own checks: magic, size, place, the sum of the parts, the CRC of the body.
Few records are decoded one by one; more of them by the scan of those who read the log, whose machine code a process
loads only then (`sources.decoding.compiled`). A later look goes on where the earlier one ended, if the bytes before
that place are still the same.

What it cut off may join the new records by chance, if they are as long as the old ones. Only the store time tells: a
broker takes it while it holds the lock of the append, so it never decreases along a log unless the clock is set back.

What is proven: every message on the way is whole, and the last byte of the last one has arrived. It was
not stored before one in front of it; or else sound records now are where there was nothing when an earlier look ended
there. A broker writes only at its end, so then all before is its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from sources.decoding.columns import Ints
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.columns.scan import sound_messages
from sources.rocketmq.files.segment_files import Segment, SegmentMap, mapped
from sources.rocketmq.files.segment_search import SegmentSearch, corrupt, head_size, in_file
from sources.rocketmq.format.commitlog import Message, decode
from sources.rocketmq.format.layout import HEAD, TOPIC_LENGTH, Limits, read_head

NOWHERE = Offset(0)
NEVER_MS: Final = -(2**63)
"""A store time before all others."""
FEW: Final = 50
"""How many messages are decoded one by one: then loading machine code pays."""
_WINDOW_BYTES = 4 * 1024 * 1024  # how much of a file is touched before its pages are released
_LINK_BYTES: Final = 64 * 1024
_CUT_OFF_HINT = (
    "Either the broker cut this record off when it recovered, and wrote the one in front of it since; or its clock was "
    "set back. It is read as soon as another record follows it, or a later file."
)


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look: data is proven up to `end`, a record boundary; `doubt` is what is wrong there.

    `latest_ms` is the latest store time of what was hopped over and is proven. `free_from` is where sound records end
    and nothing follows; None if something does. `link` is the CRC of the bytes before `end` in their file, _LINK_BYTES
    at most; None if there are none.
    """

    end: Offset
    doubt: CorruptRecord | None = None
    latest_ms: int = NEVER_MS
    free_from: Offset | None = None
    link: int | None = None

    def still_ends(self, segments: Sequence[Segment]) -> bool:
        """Whether the same bytes are in front of its end as then. Raises as `newest` does."""
        holder = next((segment for segment in segments if segment.start < self.end <= segment.end), None)
        if holder is None or self.link is None:
            return False
        with mapped(holder) as file:
            return _link(file, self.end) == self.link


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
    found, free_from = Look(start), None
    if before is not None:
        found = replace(before, doubt=None, free_from=None) if before.end == start else found
        free_from = before.free_from
    for index, segment in enumerate(segments):
        with mapped(segment) as file:
            hopped = hop(file, max(start, segment.start), limits, found.latest_ms, trusted)
            seen = _seen(file, hopped, limits, free_from)
            found = replace(seen, link=_link(file, seen.end) if seen.end > segment.start else found.link)
        if found.doubt is not None:
            return found
        if found.end < segment.end:
            return replace(found, doubt=_data_beyond(found.end, segment, segments[index + 1 :]))
    return found


def _link(file: SegmentMap, end: Offset) -> int:
    with file.view(Offset(max(end - _LINK_BYTES, file.segment.start)), end) as before:
        return crc32(before)


def _seen(file: SegmentMap, hopped: Hopped, limits: Limits, free_from: Offset | None) -> Look:
    """Return what this look proves."""
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
    """Return what is at `at`, behind the messages."""
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


def hop(file: SegmentMap, start: Offset, limits: Limits, latest_ms: int, trusted: Offset) -> Hopped:
    """Hop from `start` over all sound messages. `latest_ms` is the latest store time before them; up to `trusted` all
    are taken to be in order.
    """
    hopped = Hopped(start, None, start, latest_ms, latest_ms)
    base = file.segment.start
    with file.view(base, Offset(max(base, file.segment.end - HEAD.size))) as view:  # behind each, a blank has room
        ends, times_ms = _few(view, base, start, limits)
        hopped = hopped.over(np.array(ends), np.array(times_ms), trusted)
        if not _may_be_message(view, hopped.end - base):
            return hopped
        while True:
            at, enough = hopped.end, Offset(hopped.end + _WINDOW_BYTES)
            with view[at - base : enough - base + limits.max_record_bytes] as window:
                hopped = hopped.over(*sound_messages(window, at, enough, limits), trusted)
            if hopped.end < enough:
                return hopped
            file.forget(hopped.end)


def _few(view: memoryview, base: int, at: int, limits: Limits) -> tuple[list[int], list[int]]:
    """Return the ends and store times of the first messages from `at` on, up to something that is not sound."""
    ends: list[int] = []
    times_ms: list[int] = []
    with suppress(CorruptRecord):
        while len(ends) < FEW and _may_be_message(view, at - base):
            record = decode(view, at - base, Offset(at), limits)
            if not isinstance(record, Message):
                break
            at += record.size
            ends.append(at)
            times_ms.append(record.store_timestamp_ms)
    return ends, times_ms


def _may_be_message(view: memoryview, at: int) -> bool:
    return len(view) - at >= HEAD.size and read_head(view, at)[1] in TOPIC_LENGTH


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

    def over(self, ends: Ints, times_ms: Ints, trusted: Offset) -> Hopped:
        """Hop on over the next messages, which end at `ends` and were stored at `times_ms`."""
        if not len(ends):
            return self
        before, in_order, latest_ms = np.append(self.end, ends), self.in_order, self.latest_ms
        if count := int(np.searchsorted(ends, trusted, "right")):
            in_order, latest_ms = before[count], times_ms[count - 1]
        latest = np.maximum.accumulate(np.append(latest_ms, times_ms[count:]))
        if len(later := np.flatnonzero(times_ms[count:] == latest[1:])):
            in_order = ends[count + later[-1]]
        end, last, in_order = (Offset(int(place)) for place in (before[-1], before[-2], in_order))
        return Hopped(end, last, in_order, int(latest[-1]), int(times_ms[-1]))
