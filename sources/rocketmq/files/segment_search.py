"""One mapped segment file: what must hold of a head in it, the search for records from any byte on, and reading them.

`sources.rocketmq.format.commitlog` knows records. This module knows that a record lies in a file whose name says where
it starts and whose end it must not cross (RocketMQ specification: a blank fills what is too small for the next record).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sources.errors import CorruptRecord
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.columns import codec
from sources.rocketmq.columns.codec import NO_ROWS, DecodedRecords
from sources.rocketmq.files.segment_files import Segment, SegmentMap
from sources.rocketmq.format.checks import check_head
from sources.rocketmq.format.commitlog import decode, framed_size
from sources.rocketmq.format.layout import BLANK, HEAD, MESSAGE_HEAD, V1, V2, Files, Limits
from sources.rocketmq.format.record_search import Found, find_record, stretch, walk

_DLEDGER_HEAD = struct.Struct(">ii16xq")  # entry type, size, (index, term), the entry's own position
_DLEDGER_TYPES = (1, 2)  # an entry with data, an entry without
_DLEDGER_HINT = (
    "This is the log of a DLedger broker (enableDLegerCommitLog=true): each record is wrapped in a 48-byte entry head. "
    "logtwin reads plain commit logs only."
)
_MEND = (
    "If a broker is appending here, it stopped in the middle of a record (a replica whose master is away does that); "
    "otherwise restore the file from a replica of this broker. Nothing is skipped."
)


def head_size(segment: Segment, rest: memoryview, at: Offset, limits: Limits) -> int:
    """Return the size of the record whose head is at `at`, or 0 for eight zero bytes.

    `rest` is the file from there to its end. Raises CorruptRecord unless the head carries its own offset and the record
    fits into the file.
    """
    if len(rest) < HEAD.size:
        raise corrupt(
            segment, at, "the file ends without a blank record", f"{HEAD.size} bytes or more", f"{len(rest)} bytes"
        )
    size, magic = HEAD.unpack_from(rest)
    if size == magic == 0:
        return 0
    try:
        check_head(size, magic, at, replace(limits, files=Files(segment.start, segment.size)))
    except CorruptRecord as error:
        raise in_file(error, segment, _DLEDGER_HINT if _is_dledger(rest, at) else None) from None
    if size > len(rest):
        raise corrupt(
            segment, at, "the record reaches past the end of its file", f"{len(rest)} bytes at most", f"{size}"
        )
    if magic != BLANK:
        _check_place(segment, at, rest, size)
    return int(size)


def _check_place(segment: Segment, at: Offset, rest: memoryview, size: int) -> None:
    stored = MESSAGE_HEAD.unpack_from(rest)[2]
    if stored != at:
        raise corrupt(
            segment, at, "the record carries another offset than its place", f"physical offset {at}", f"{stored}"
        )
    if len(rest) - size < HEAD.size:
        problem = "the record leaves no room for the blank record that ends a file: the file is cut off"
        raise corrupt(segment, at, problem, f"{HEAD.size} bytes after it", f"{len(rest) - size}")


def hop_messages(view: memoryview, base: int, start: int, enough: int, max_size: int) -> Offset:
    """Hop from offset `start` over messages to the first one at or after `enough`, or to something else than a message.

    `view` is a whole file, whose first byte is offset `base`. Only heads are looked at.
    """
    unpack = MESSAGE_HEAD.unpack_from
    position, length = start - base, len(view)
    stop = min(enough - base, length - MESSAGE_HEAD.size)
    while position < stop:
        size, magic, stored = unpack(view, position)
        if magic not in (V1, V2) or stored != base + position or not MESSAGE_HEAD.size < size <= max_size:
            break
        if position + size > length - HEAD.size:
            break
        position += size
    return Offset(base + position)


def corrupt(
    segment: Segment, at: Offset, problem: str, expected: object, found: object, hint: str = _MEND
) -> CorruptRecord:
    problem = f"{problem} in segment file {segment.path}"
    return CorruptRecord(problem, offset=at, expected=expected, found=found, hint=hint)


def in_file(error: CorruptRecord, segment: Segment, hint: str | None = None) -> CorruptRecord:
    """Return `error`, raised by code that sees only bytes, with the segment file and a hint."""
    return type(error)(
        f"{error.problem} in segment file {segment.path}",
        log=error.log,
        offset=error.offset,
        expected=error.expected,
        found=error.found,
        hint=hint or error.hint or _MEND,
    )


def _is_dledger(rest: memoryview, at: Offset) -> bool:
    if len(rest) < _DLEDGER_HEAD.size:
        return False
    kind, _, position = _DLEDGER_HEAD.unpack_from(rest)
    return kind in _DLEDGER_TYPES and position == at


class SegmentSearch:
    """Searches a mapped segment file."""

    def __init__(self, file: SegmentMap, limits: Limits) -> None:
        self.limits = replace(limits, files=Files(file.segment.start, file.segment.size))
        self._file = file

    def head_size(self, at: Offset) -> int:
        """Return the size that the head gives, 0 where the data ends. Raises CorruptRecord that names the file."""
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


NO_BOUNDARY = "no record starts at the offset to read from"
BOUNDARY_HINT = (
    "The position to read from is no record boundary of this log: it is another broker's log, or it was rewritten. "
    "Compare the log id and the master's history before you go on."
)


class SegmentReader:
    """Reads what `owned` covers of a mapped segment file; a `record_search.Source`.

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
