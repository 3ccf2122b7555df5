"""Many records at once, first half: where each field of each record is, with every check done. numpy, no Spark.

Records are found by hopping from head to head, one loop step each. Everything after that, beginning with the check of
the heads, works on whole columns: fields of fixed size are gathered by index, big-endian, and the spans of body, topic
and properties follow from the lengths. The checks are those of `checks`, over columns, but they only say *that*
something is wrong. `commitlog.decode` finds what is wrong, and in which record first, so that both readers fail with
the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sources.decoding.columns import Flags, Ints, read_only
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.format.checks import check_head
from sources.rocketmq.format.layout import HEAD, Limits, read_head

if TYPE_CHECKING:
    from sources.rocketmq.columns.loops import Messages


class SuspectRecord(Exception):
    """Some record fails a check. This never leaves the decoders of this package."""


@dataclass(frozen=True, slots=True)
class RecordHeads:
    """The records that start in a range and are completely there, [starts, ends). `end` is where the last one ends.

    `error` is what is wrong with the head at `end`, if anything; it comes after whatever is wrong before it.
    """

    starts: Ints
    is_blank: Flags
    end: int
    error: CorruptRecord | None

    @property
    def ends(self) -> Ints:
        return np.append(self.starts[1:], self.end)

    def first(self, count: int) -> RecordHeads:
        """Return the first `count` of them."""
        if count == len(self.starts):
            return self
        return RecordHeads(self.starts[:count], self.is_blank[:count], int(self.starts[count]), None)


def hop(view: memoryview, start: Offset, stop: Offset, limits: Limits) -> RecordHeads:
    """Find the records of `view`, which begins with byte `start` of the log, that start before `stop`."""
    from sources.rocketmq.columns import loops

    stop = Offset(min(stop, start + len(view) - HEAD.size + 1))
    places, is_message = loops.hop(read_only(view), stop - start, limits.max_record_bytes)
    count, error = len(is_message), None
    for number in np.flatnonzero(~is_message).tolist():
        at = int(places[number])
        error = _head_error(*read_head(view, at), start + at, limits)
        if error is not None:
            count = number
            break
    if count and places[count] > len(view):
        count -= 1
    return RecordHeads(places[:count], ~is_message[:count], int(places[count]), error)


def _head_error(size: int, magic: int, offset: int, limits: Limits) -> CorruptRecord | None:
    try:
        check_head(size, magic, offset, limits)
    except CorruptRecord as error:
        return error
    return None


def scan(view: memoryview, starts: Ints, ends: Ints, offsets: Ints) -> Messages:
    """Read the message records of `view` that lie at [starts, ends), belong at `offsets`, and have checked heads.

    Raises SuspectRecord if a record contradicts itself or its place.
    """
    sound, messages = _read(view, starts, ends, offsets)
    if sound < len(starts):
        raise SuspectRecord
    return messages


def sound_messages(view: memoryview, start: Offset, stop: Offset, limits: Limits) -> tuple[Ints, Ints]:
    """Return the ends of the sound messages that `view` begins with, and their store times, in ms.

    `view` begins with byte `start` of the log. All but the topics' UTF-8 is checked; those of messages that start
    before `stop`.
    """
    heads = hop(view, start, stop, limits)
    blanks = np.flatnonzero(heads.is_blank)
    heads = heads.first(int(blanks[0])) if blanks.size else heads
    offsets = start + heads.starts
    sound, messages = _read(view, heads.starts, heads.ends, offsets)
    return start + heads.ends[:sound], messages.store_timestamp_ms[:sound]


def _read(view: memoryview, starts: Ints, ends: Ints, offsets: Ints) -> tuple[int, Messages]:
    """Read the records as `scan` does; return how many are sound before the first that is not."""
    from sources.rocketmq.columns.body_crcs import body_crcs
    from sources.rocketmq.columns.loops import read

    raw = read_only(view)
    sound, messages = read(raw, starts, ends, offsets)
    crcs = body_crcs(raw, messages.body_starts[:sound], messages.body_ends[:sound])
    wrong = np.flatnonzero(crcs != messages.body_crc[:sound])
    return (int(wrong[0]) if wrong.size else sound), messages
