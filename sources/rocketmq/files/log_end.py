"""The end of a commit log's data, found by hopping from record head to record head.

A segment file is allocated whole and zeroed, so its length says nothing: the data ends where the next head is eight
zero bytes and nothing but zeros follows. The broker appends while we look, its bytes arrive in pieces, and a look may
see half a record. So a look gives the end it can prove, and a *doubt*: the error for the bytes after that end, which
may still turn out to be a record in the making. The caller decides how long a doubt may last.

A reader that gets past damage asks for the end behind it: as long as any sound record follows a doubt, the log goes on
there, and only what follows the last such record is the tail.

What is proven: every head on the way carries its own offset; the last record is whole (its parts add up, its body
matches its checksum, its last byte has arrived). The earlier ones are whole because a broker completes one record
before the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.files.segment_files import Segment, SegmentMap, mapped
from sources.rocketmq.files.segment_search import SegmentSearch
from sources.rocketmq.format.commitlog import Limits, Message, decode
from sources.rocketmq.format.heads import corrupt, head_size, hop_messages, in_file

_FORGET_BYTES = 4 * 1024 * 1024  # how much of a file is touched before its pages are released


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look: data is proven up to `end`, a record boundary; `doubt` is what is wrong there."""

    end: Offset
    doubt: CorruptRecord | None = None


def look(segments: Sequence[Segment], start: Offset, limits: Limits) -> Look:
    """Find the end of the data from `start` on, a record boundary inside the first of `segments`.

    Raises FileNotFoundError if one of the files is deleted meanwhile, SegmentError if one changes its length.
    """
    found = Look(start)
    for index, segment in enumerate(segments):
        with mapped(segment) as file:
            found = _look_into(file, max(start, segment.start), limits)
        if found.doubt is not None:
            return found
        if found.end < segment.end:
            return Look(found.end, _data_beyond(found.end, segment, segments[index + 1 :]))
    return found


def look_past_damage(segments: Sequence[Segment], start: Offset, limits: Limits) -> Look:
    """Like `look`, but leave a doubt only if no sound record follows it."""
    found = look(segments, start, limits)
    while found.doubt is not None:
        following = _sound_record(segments, Offset(found.end + 1), limits)
        if following is None:
            return found
        found = look([segment for segment in segments if segment.end > following], following, limits)
    return found


def _sound_record(segments: Sequence[Segment], start: Offset, limits: Limits) -> Offset | None:
    """Find the first sound record at or after `start`; raises as `look` does."""
    for segment in segments:
        if segment.end > start:
            with mapped(segment) as file:
                found = SegmentSearch(file, limits).sound_record(Offset(max(start, segment.start)))
            if found < segment.end:
                return found
    return None


def _look_into(file: SegmentMap, start: Offset, limits: Limits) -> Look:
    at, last = _hop(file, start, limits.max_record_bytes)
    with file.rest(at) as rest:
        try:
            size = head_size(file.segment, rest, at, limits)
        except CorruptRecord as error:
            found = Look(at, error)
        else:
            if at + size == file.segment.end:  # only a blank reaches the end of its file
                return Look(file.segment.end)
            # Otherwise zeros, or a message that has arrived since the hop saw zeros; the next look will see it.
            found = Look(at, None if size else _data_after_zeros(file.segment, rest, at, limits))
    torn = None if last is None else _torn(file, last, at, limits)
    return found if last is None or torn is None else Look(last, torn)


def _hop(file: SegmentMap, start: Offset, max_size: int) -> tuple[Offset, Offset | None]:
    """Hop from `start` over all messages; return where there is none, and the last message hopped over."""
    at, last = start, None
    with file.rest(file.segment.start) as view:
        while True:
            enough = at + _FORGET_BYTES
            at, latest = hop_messages(view, file.segment.start, at, enough, max_size)
            last = last if latest is None else latest
            if at < enough:
                return at, last
            file.forget(at)


def _torn(file: SegmentMap, at: Offset, end: Offset, limits: Limits) -> CorruptRecord | None:
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


def _data_after_zeros(segment: Segment, rest: memoryview, at: Offset, limits: Limits) -> CorruptRecord | None:
    """Check that zeros follow for a record's size: a record may arrive back to front, or the last head may be wrong."""
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
