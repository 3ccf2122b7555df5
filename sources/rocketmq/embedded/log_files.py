"""The commit log's files, open for writing, all of one size and each named after the offset of its first byte.

Bytes are written with `pwrite` and not through a memory map: on a full disk a write then fails with an error that the
producer is told, whereas a map would end the process. Files are sparse, so a new one costs no space.

Invariants: file `i` starts at `first + i * size_bytes`; no read and no write crosses a file end.

When a master starts on them, every record is read and checked (`recover`). An incomplete record at the very end of the
data is left by a crash during an append, of which nobody was told for good; it is cut off. A damaged record with sound
ones behind it is something else: cutting there would lose those, so the master does not start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.errors import CorruptRecord, LogtwinError
from sources.offsets import Offset
from sources.rebuilt_folder import sync_folder
from sources.records import BLANK, MESSAGE
from sources.rocketmq.columns import codec
from sources.rocketmq.files.segment_files import Segment, check_joined, list_segments, mapped
from sources.rocketmq.format.commitlog import Message, decode
from sources.rocketmq.format.layout import Limits
from sources.rocketmq.format.record_search import find_record

CHUNK_BYTES: Final = 32 * 1024 * 1024  # more than the largest record
_TRANSACTION_BITS: Final = 0xC
_IN_NO_QUEUE: Final = (0x4, 0xC)  # prepared, rolled back: such records take no place in a queue


class LogFiles:
    """The files of one directory. Raises SegmentError if they do not make one log."""

    def __init__(self, directory: Path, file_size_bytes: int) -> None:
        """Open the files. `file_size_bytes` is only for an empty directory: existing files keep their size."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        # A crash may leave an empty file, which does not count.
        has_log = any(path.stat().st_size for path in directory.iterdir() if path.name.isdigit() and path.is_file())
        self._segments = list(list_segments(directory)) if has_log else []
        check_joined(self._segments)
        self.size_bytes = self._segments[0].size if self._segments else file_size_bytes
        self.first = self._segments[0].start if self._segments else Offset(0)
        self._descriptors = [os.open(segment.path, os.O_RDWR) for segment in self._segments]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def end(self) -> Offset:
        """The first byte that has no file yet."""
        return Offset(self.first + len(self._segments) * self.size_bytes)

    def file_start(self, offset: Offset) -> Offset:
        """Return the first byte of the file that contains `offset`."""
        return Offset(offset - (offset - self.first) % self.size_bytes)

    def left_in_file(self, offset: Offset) -> int:
        """Return the number of bytes from `offset` to the end of its file."""
        return self.file_start(offset) + self.size_bytes - offset

    def create_next(self) -> None:
        """Add a zero-filled file after the last one; it is durable when this returns. Raises OSError."""
        start = self.end
        path = self.directory / f"{start:020d}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, self.size_bytes)
            os.fsync(descriptor)
            sync_folder(self.directory)
        except OSError:
            os.close(descriptor)
            raise
        self._segments.append(Segment(path, start, self.size_bytes))
        self._descriptors.append(descriptor)

    def read(self, offset: Offset, size_bytes: int) -> bytes:
        """Read bytes from `offset` on, at most to the end of its file."""
        index, at = divmod(offset - self.first, self.size_bytes)
        return os.pread(self._descriptors[index], min(size_bytes, self.size_bytes - at), at)

    def write(self, offset: Offset, data: bytes) -> None:
        """Write all of `data` at `offset`. After an OSError, what was written until then is not part of the log."""
        index, at = divmod(offset - self.first, self.size_bytes)
        written = os.pwrite(self._descriptors[index], data, at)
        while written < len(data):
            written += os.pwrite(self._descriptors[index], data[written:], at + written)

    def clear(self, offset: Offset) -> None:
        """Fill with zeros from `offset` to the end of its file; durable when this returns."""
        index, at = divmod(offset - self.first, self.size_bytes)
        os.ftruncate(self._descriptors[index], at)
        os.ftruncate(self._descriptors[index], self.size_bytes)
        os.fsync(self._descriptors[index])

    def sync(self, offset: Offset) -> None:
        """Make what was written to the file of `offset` durable. May be called from another thread."""
        os.fdatasync(self._descriptors[(offset - self.first) // self.size_bytes])

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


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
        if any(later.has_data() for later in segments[index + 1 :]):
            raise stopped
        break
    return found


def _read_file(view: memoryview, found: Recovered, limits: Limits) -> LogtwinError | None:
    """Count the records of one file, which starts at `found.end`. Return why it stopped; None at the file's end."""
    start, end = found.end, Offset(found.end + len(view))
    while found.end < end:
        at = found.end - start
        decoded = codec.decode_sound(view[at : at + CHUNK_BYTES], found.end, end, limits)
        found.count(decoded.records)
        found.end = decoded.end
        if decoded.error is not None:
            return decoded.error
        if decoded.end == start + at:
            return CorruptRecord("the record reaches past the end of its file", offset=found.end)
    return None


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
