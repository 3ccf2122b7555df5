"""What a log holds when a master starts on it: where it ends, and the next offset of each queue.

Every record is read and checked. An incomplete record at the very end of the data is left by a crash during an append,
of which nobody was told for good; it is cut off. A damaged record with sound ones behind it is something else: cutting
there would lose those, so the master does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.errors import CorruptRecord, LogtwinError
from sources.offsets import Offset
from sources.records import BLANK, MESSAGE
from sources.rocketmq.columns import codec
from sources.rocketmq.files.segment_files import Segment, mapped
from sources.rocketmq.format.commitlog import Limits, Message, decode
from sources.rocketmq.format.record_search import find_record

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 32 * 1024 * 1024  # more than the largest record
_TRANSACTION_BITS: Final = 0xC
_IN_NO_QUEUE: Final = (0x4, 0xC)  # prepared, rolled back: such records take no place in a queue


@dataclass(slots=True)
class Recovered:
    """What recovery found in the log."""

    end: Offset
    torn: CorruptRecord | None = None  # what follows `end` in its file, to be cut off
    last_message: Offset | None = None  # the record that ends at `end`; None for a blank
    next_queue_offsets: dict[tuple[str, int], int] = field(default_factory=dict)  # (topic, queue id) -> next
    first_store_timestamp_ms: int = 0
    last_store_timestamp_ms: int = 0

    def count(self, records: pa.RecordBatch) -> None:
        if records.num_rows:
            is_blank = records["kind"][-1].as_py() == BLANK
            self.last_message = None if is_blank else Offset(records["offset"][-1].as_py())
        messages = pa.table(records).filter(pc.field("kind") == MESSAGE)
        if not messages.num_rows:
            return
        stored_ms = messages["store_timestamp"].cast(pa.int64())
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, pc.max(stored_ms).as_py() // 1000)
        self.first_store_timestamp_ms = self.first_store_timestamp_ms or stored_ms[0].as_py() // 1000
        kind = pc.bit_wise_and(messages["sys_flag"], _TRANSACTION_BITS)
        queued = messages.filter(pc.invert(pc.is_in(kind, pa.array(_IN_NO_QUEUE, pa.int32()))))
        for queue in queued.group_by(["topic", "queue_id"]).aggregate([("queue_offset", "max")]).to_pylist():
            key = (queue["topic"], queue["queue_id"])
            following = queue["queue_offset_max"] + 1
            self.next_queue_offsets[key] = max(following, self.next_queue_offsets.get(key, 0))

    def take_back(self, message: Message) -> None:
        self.end, self.last_message = message.offset, None
        if message.queue_offset:
            self.next_queue_offsets[message.topic, message.queue_id] = message.queue_offset
        else:
            self.next_queue_offsets.pop((message.topic, message.queue_id), None)


def recover(segments: Sequence[Segment], limits: Limits) -> Recovered:
    """Read the whole log in `segments`, which join. Raises CorruptRecord for damage that is not at the end."""
    found = Recovered(segments[0].start if segments else Offset(0))
    for index, segment in enumerate(segments):
        with mapped(segment) as file, file.rest(segment.start) as view:
            stopped = _read_file(view, found, limits)
            if stopped is None:
                continue
            found.torn = _cut_off_ending(view, segment, found, limits)
            with view[found.end - segment.start :] as rest:
                found.torn = found.torn or _torn(rest, stopped, found.end, limits)
        _check_nothing_follows(segments[index + 1 :], stopped)
        break
    return found


def _read_file(view: memoryview, found: Recovered, limits: Limits) -> LogtwinError | None:
    """Count the records of one file, which starts at `found.end`. Return why it stopped; None at the file's end."""
    start, end = found.end, Offset(found.end + len(view))
    while found.end < end:
        at = found.end - start
        try:
            found.end = _count(view[at : at + CHUNK_BYTES], found, end, limits)
        except CorruptRecord as error:
            good = Offset(error.offset or start)
            found.end = _count(view[at : good - start], found, good, limits)
            return error
        if found.end == start + at:
            return CorruptRecord("the record reaches past the end of its file", offset=found.end)
    return None


def _count(data: memoryview, found: Recovered, stop: Offset, limits: Limits) -> Offset:
    decoded = codec.decode(data, found.end, stop, limits)
    found.count(decoded.records)
    return decoded.end


def _cut_off_ending(view: memoryview, segment: Segment, found: Recovered, limits: Limits) -> CorruptRecord | None:
    """Remove the last record if its last byte never reached the disk; return what is wrong with it.

    No checksum covers its last field, the properties. The store ends them with 0x02, and no broker ends them with 0x00.
    """
    if found.last_message is None:
        return None
    last = decode(view, found.last_message - segment.start, found.last_message, limits)
    if not isinstance(last, Message) or not last.properties.endswith(b"\0"):
        return None
    found.take_back(last)
    return CorruptRecord("the end of the properties is missing", offset=last.offset)


def _torn(rest: memoryview, stopped: LogtwinError, end: Offset, limits: Limits) -> CorruptRecord | None:
    """Return what to cut off; None if zeros follow `end`, as they should. Raises what cannot be cut."""
    if not np.frombuffer(rest, np.uint8).any():
        return None
    after = Offset(end + 1)
    if find_record(rest[1:], after, limits, is_end=True).offset < end + len(rest):
        raise stopped
    return CorruptRecord(stopped.problem, offset=end, expected=stopped.expected, found=stopped.found)


def _check_nothing_follows(segments: Sequence[Segment], stopped: LogtwinError) -> None:
    for segment in segments:
        if segment.has_data():
            raise stopped
