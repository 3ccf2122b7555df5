"""The search for record starts in one mapped segment file, from any byte of it on."""

from __future__ import annotations

from dataclasses import replace

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.files.segment_files import SegmentMap
from sources.rocketmq.format.commitlog import Limits, decode
from sources.rocketmq.format.heads import head_size, hop_messages
from sources.rocketmq.format.layout import Files
from sources.rocketmq.format.record_search import Found, find_record, stretch


class SegmentSearch:
    """Searches a mapped segment file."""

    def __init__(self, file: SegmentMap, limits: Limits) -> None:
        self.limits = replace(limits, files=Files(file.segment.start, file.segment.size))
        self._file = file

    def head_size(self, at: Offset) -> int:
        """Return `heads.head_size`, 0 where the data ends. Raises CorruptRecord that names the file."""
        with self._file.rest(at) as rest:
            return head_size(self._file.segment, rest, at, self.limits)

    def find(self, start: Offset, size: int) -> Found:
        """Find the first sound record among the `size` bytes from `start` on, as `record_search.find_record` does."""
        segment = self._file.segment
        end = Offset(min(start + size, segment.end))
        with self._file.view(start, end) as window:
            found = find_record(window, start, self.limits, is_end=end == segment.end)
        if found.is_final and found.offset < segment.end and not self.size_if_sound(found.offset):
            return Found(Offset(found.offset + 1), is_final=False)
        return found

    def sound_record(self, start: Offset) -> Offset:
        """Find the first sound record at or after `start`, or the file's end.

        It goes by what a record looks like, not by its place among the others; `record_at_or_after` is not misled by a
        look-alike.
        """
        at = start
        for passed in stretch(self.find, at, search_from=at, stop=self._file.segment.end, limits=self.limits):
            at = passed.end
            self._file.forget(at)
        return at

    def record_at_or_after(self, start: Offset) -> Offset:
        """Find the first record boundary at or after `start`, sound or not; the file's end if no more records start.

        A body may hold what looks like a record of exactly its place. So the search begins so far back that the record
        around `start` begins later, and hops on from what it finds: heads, not bodies, decide.
        """
        base = self._file.segment.start
        at = Offset(max(base, start - self.limits.max_record_bytes))
        while True:
            found = at if at == base else self.sound_record(at)
            landed = self._hop(found, start)
            if landed >= start:
                return landed
            at = Offset(max(landed, found + 1))  # it found no record, or a record on the way is damaged

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        """Find the first boundary at or after `offset` that a reader coming from before it also reaches, damage or not.

        That is the file's start, a sound record, the file's end, or `maximum`.
        """
        segment = self._file.segment
        if offset <= segment.start:
            return min(segment.start, maximum)
        at = self.record_at_or_after(offset)
        while at < min(maximum, segment.end) and not self.size_if_sound(at):
            at = self.record_at_or_after(Offset(at + 1))
        return min(at, maximum)

    def _hop(self, at: Offset, enough: Offset) -> Offset:
        """Hop from the record at `at` to the first at or after `enough`; return less if a hop leads to no record."""
        segment = self._file.segment
        if at == segment.end:
            return at
        with self._file.rest(segment.start) as view:
            landed = hop_messages(view, segment.start, at, enough, self.limits.max_record_bytes)
        if landed < enough and landed + self.size_if_sound(landed) == segment.end:  # only a blank ends a file
            return segment.end
        return landed

    def size_if_sound(self, at: Offset) -> int:
        """Return the size of the record at `at`; 0 if none starts there or it is damaged."""
        try:
            size = self.head_size(at)
            with self._file.view(at, Offset(at + size)) as record:
                decode(record, 0, at, self.limits)
        except CorruptRecord:
            return 0
        return size
