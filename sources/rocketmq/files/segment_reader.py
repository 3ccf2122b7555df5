"""The records of one segment file, decoded a chunk at a time from the mapped file, which is never copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sources.errors import CorruptRecord
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.columns import codec
from sources.rocketmq.columns.codec import NO_ROWS, DecodedRecords
from sources.rocketmq.files.segment_files import SegmentMap
from sources.rocketmq.files.segment_search import SegmentSearch, corrupt, in_file
from sources.rocketmq.format.commitlog import HEAD, Limits, framed_size
from sources.rocketmq.format.record_search import stretch, walk

NO_BOUNDARY = "no record starts at the offset to read from"
BOUNDARY_HINT = (
    "The position to read from is no record boundary of this log: it is another broker's log, or it was rewritten. "
    "Compare the log id and the master's history before you go on."
)


class SegmentReader:
    """Reads what `owned` covers of a mapped segment file; a `record_walk.Source`.

    `explain_zeros` returns the error for eight zero bytes where a record should start. All errors name the file.
    """

    def __init__(
        self, file: SegmentMap, owned: OffsetRange, limits: Limits, explain_zeros: Callable[[Offset], CorruptRecord]
    ) -> None:
        self._file = file
        self._owned = owned
        self._stop = Offset(min(owned.end, file.segment.end))
        self._search = SegmentSearch(file, limits)
        self._explain_zeros = explain_zeros

    def chunks(self, *, boundary: bool, chunk_bytes: int, past_damage: bool) -> Iterator[Chunk | Damage]:
        """Yield what `Segments.chunks` does. Raises CorruptRecord, and what `explain_zeros` raises."""
        at = self._first_record(boundary=boundary, past_damage=past_damage)
        return walk(self, at, self._stop, chunk_bytes=chunk_bytes, past_damage=past_damage)

    def _first_record(self, *, boundary: bool, past_damage: bool) -> Offset:
        start, segment = self._owned.start, self._file.segment
        if start <= segment.start:
            return segment.start
        if not boundary:
            return self._search.record_at_or_after(start)
        if not past_damage:
            self._check_boundary(start)
        return start

    def _check_boundary(self, start: Offset) -> None:
        """Check the very first head. If it is not a head, this is more likely another log than a damaged one."""
        try:
            self._search.head_size(start)
        except CorruptRecord as error:
            expected, found = error.expected, error.found
            raise corrupt(self._file.segment, start, NO_BOUNDARY, expected, found, BOUNDARY_HINT) from error

    def decode(self, at: Offset, stop: Offset, size: int) -> DecodedRecords:
        try:
            head_bytes = self._search.head_size(at)
        except CorruptRecord as wrong:
            return DecodedRecords(NO_ROWS, at, wrong)
        if not head_bytes:
            return DecodedRecords(NO_ROWS, at, self._explain_zeros(at))
        end = Offset(min(at + max(head_bytes, size), self._file.segment.end))
        with self._file.view(at, end) as window:
            decoded = codec.decode_sound(window, at, stop, self._search.limits)
            if decoded.error is None:
                return decoded
            is_zero = not any(window[decoded.end - at :][: HEAD.size])
        error = self._explain_zeros(decoded.end) if is_zero else in_file(decoded.error, self._file.segment)
        return replace(decoded, error=error)

    @contextmanager
    def view(self, covered: OffsetRange) -> Iterator[memoryview]:
        with self._file.view(covered.start, covered.end) as view:
            yield view
        self._file.forget(covered.end)

    def damage(self, at: Offset) -> Iterator[OffsetRange]:
        """Yield the damage at `at`, never past the end of what is read: a cut at a record, or the file's end."""
        with self._file.rest(at) as rest:
            size = framed_size(rest, at, self._search.limits)
        if size is not None:
            return iter([OffsetRange(at, Offset(min(at + size, self._stop)))])
        after = Offset(at + 1)
        return stretch(self._search.find, at, search_from=after, stop=self._stop, limits=self._search.limits)
