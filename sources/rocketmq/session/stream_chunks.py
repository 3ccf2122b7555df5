"""A stream of log bytes as chunks of whole records. No I/O of its own.

A stream may be cut anywhere, unlike records. Bytes are gathered until `chunk_bytes` of them (or what is left of the
range) are there. The whole records among them become a chunk, and the rest stays for the next one. More is gathered
only for a record that is larger, up to the limit of a record, which is checked first; and for a search past damage, up
to twice that limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sources.errors import CorruptRecord
from sources.master import Chunk, Damage, TimeIsUp
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.columns import codec
from sources.rocketmq.columns.codec import NO_ROWS, DecodedRecords
from sources.rocketmq.format.checks import check_head
from sources.rocketmq.format.commitlog import framed_size
from sources.rocketmq.format.layout import HEAD, LEAD, MESSAGE_HEAD, V1, V2, Limits, read_head
from sources.rocketmq.format.record_search import SMALL_WINDOW_BYTES, Found, find_record, stretch, walk


@dataclass(slots=True)
class LogEnd:
    """Where the master's log ends: the known end, and a way to ask again, because a log grows."""

    known: Offset
    ask: Callable[[], Offset]

    def grows(self) -> bool:
        """Ask again; return whether the known end has moved."""
        before = self.known
        self.known = max(before, self.ask())
        return self.known > before

    def lies_below(self, wanted: int) -> bool:
        """Whether the log ends below `wanted`; asks again before it says so."""
        return wanted > self.known and not (self.grows() and wanted <= self.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkReader:
    """How to read a stream.

    With `past_damage`, damage is yielded instead of raised. With `searched`, the reader of the following range begins
    with a search. A search passes over everything that is not a sound record, so it could pass over a damaged one.
    Therefore the reader before it proves that the search finds the first record behind its own range or, with
    `past_damage`, yields everything that the search passes over.
    """

    chunk_bytes: int
    limits: Limits
    log_end: LogEnd
    past_damage: bool = False
    searched: bool = False

    def read(self, pieces: Iterator[bytes], owned: OffsetRange, *, boundary: bool) -> Iterator[Chunk | Damage]:
        """Implement `MasterLog.read` for an endless stream that begins at byte ``owned.start`` of the log.

        Takes from `pieces` only what the log is known to hold. If `pieces` ends with TimeIsUp, the whole records that
        have come are yielded before it is raised. Raises CorruptRecord, and what `pieces` raises.
        """
        source = _Stream(pieces, owned, self.limits, self.log_end, searched=self.searched)
        if not boundary and self.past_damage:
            source.skip_to_record()
        elif not boundary:
            source.skip_to_boundary()
        elif not self.past_damage:
            source.check_boundary()
        at, end = source.start, owned.end
        while at < end:
            for piece in walk(source, at, end, chunk_bytes=self.chunk_bytes, past_damage=self.past_damage):
                yield piece
                at = piece.covered.end
            if self.searched and at < self.log_end.known:
                end = self._end_for_a_search(source, at)

    def _end_for_a_search(self, source: _Stream, at: Offset) -> Offset:
        """Return `at` if the search from the range's end finds the record there; otherwise the offset behind it."""
        found = source.first_found(at)
        if found == at:
            return at
        if self.past_damage and found > at:
            return Offset(at + 1)  # no other reader takes what starts here
        raise CorruptRecord(
            "the record behind the range would be passed over",
            offset=at,
            expected=f"a search from {source.owned.end} to find it",
            found="nothing" if found > at else f"what looks like a record at {found}",
            hint="The record is damaged: compare it with another replica, or read without parallel_reads to see how.",
        )


class _Stream:
    """The bytes of a stream from `start` on that have come and are not used up; a `record_search.Source`."""

    def __init__(
        self, pieces: Iterator[bytes], owned: OffsetRange, limits: Limits, log_end: LogEnd, *, searched: bool
    ) -> None:
        self.owned = owned
        self.start = owned.start
        self._data = b""
        self._data_start = owned.start  # at most `start`: bytes are dropped at the next gathering
        self._pieces = pieces
        self._limits = limits
        self._log_end = log_end
        self._searched = searched
        self._time_is_up = False

    def decode(self, at: Offset, stop: Offset, size: int) -> DecodedRecords:
        self._drop_below(at)
        wanted = min(size, stop - at)
        while True:
            self._gather(wanted, may_be_less=True)
            window = self._bytes(at, max(wanted, SMALL_WINDOW_BYTES))  # it may have come already
            decoded = codec.decode_sound(window, at, stop, self._limits)
            if decoded.end > at or decoded.error is not None:
                return decoded
            if self._time_is_up:
                raise TimeIsUp
            # The head has come and passed its checks, or it is still to come.
            wanted = HEAD.size if len(window) < HEAD.size else read_head(self._bytes(at), 0)[0]
            if self._log_end.lies_below(at + wanted):
                return DecodedRecords(NO_ROWS, at, _reaches_past_end(at, wanted, self._log_end.known))

    @contextmanager
    def view(self, covered: OffsetRange) -> Iterator[memoryview]:
        self._drop_below(covered.start)
        yield self._bytes(covered.start, covered.size)

    def damage(self, at: Offset) -> Iterator[OffsetRange]:
        """Yield the damage at `at`. It may end behind the range; a search from the range's end then ends there, too."""
        self._drop_below(at)
        size = framed_size(self._bytes(at), at, self._limits)
        if size is not None and not (self._searched and at + size > self.owned.end):
            return iter([OffsetRange(at, Offset(at + size))])
        search_from = Offset(at + 1 if size is None else max(at + 1, self.owned.end))
        return stretch(self._find, at, search_from=search_from, stop=None, limits=self._limits)

    def check_boundary(self) -> None:
        """Check the very first head. If it is not a head, this is more likely another log than a damaged one."""
        if self._log_end.lies_below(self.start + HEAD.size):
            return  # no room for a record: an error is raised later
        self._gather(HEAD.size)
        try:
            check_head(*read_head(self._bytes(self.start), 0), self.start, self._limits)
        except CorruptRecord as error:
            raise CorruptRecord(
                "no record starts at the offset to read from",
                offset=self.start,
                expected=error.expected,
                found=error.found,
                hint="The position is not a record boundary of this master's log: it is another broker's, or it was "
                "rewritten. Compare the log id and the master's history before you go on.",
            ) from error

    def skip_to_record(self) -> None:
        """Drop what precedes the first sound record, or everything owned if that comes later.

        What precedes it is the rest of a record, or damage, which the reader of the range before yields.
        """
        for passed in self._search(self.start, self.owned.end):
            self._drop_below(passed.end)

    def skip_to_boundary(self) -> None:
        """Like `skip_to_record`, but do not pass over a damaged record at the very start."""
        if self._stands_in_place():
            return
        start, most = self.start, 2 * self._limits.max_record_bytes  # the rest of one record and a whole one
        for passed in self._search(start, Offset(min(start + most, self._log_end.known))):
            self._drop_below(passed.end)
        if self.start == start + most < self._log_end.known:
            raise _no_boundary(start, most)

    def first_found(self, at: Offset) -> Offset:
        """Return the record that a search from the end of the range finds, at or before `at`; `at` + 1 if none."""
        first = max(self.owned.end, self.start)  # what is gone was searched already
        for passed in self._search(first, Offset(at + 1)):
            first = passed.end
        return first

    def _search(self, start: Offset, stop: Offset) -> Iterator[OffsetRange]:
        return stretch(self._find, start, search_from=start, stop=stop, limits=self._limits)

    def _find(self, start: Offset, size: int) -> Found:
        end = Offset(min(start + size, self._log_end.known))
        self._gather(end - self.start)
        with self._bytes(start, end - start) as window:
            found = find_record(window, start, self._limits, is_end=False)
            if found.is_final or end < self._log_end.known or self._log_end.grows():
                return found
            return find_record(window, start, self._limits, is_end=True)

    def _stands_in_place(self) -> bool:
        """Whether the data begins with the record of this place, sound or not, by its own magic and offset."""
        if self._log_end.lies_below(self.start + LEAD.size):
            return False
        self._gather(LEAD.size)
        _, magic, place = MESSAGE_HEAD.unpack_from(self._bytes(self.start))
        return magic in (V1, V2) and bool(place == self.start)

    def _bytes(self, start: Offset, size: int | None = None) -> memoryview:
        """Return `size` of the bytes that are there from `start` on, or all of them."""
        at = start - self._data_start
        return memoryview(self._data)[at : None if size is None else at + size]

    def _gather(self, size: int, *, may_be_less: bool = False) -> None:
        """Gather at least `size` bytes from `start` on; they are joined once, however many pieces they come in.

        Raises TimeIsUp unless there `may_be_less`: then only what has come so far is there.
        """
        missing = self.start + size - (self._data_start + len(self._data))
        if missing <= 0:
            return
        parts: list[bytes | memoryview] = [self._bytes(self.start)]
        while missing > 0 and not self._time_is_up:
            try:
                parts.append(next(self._pieces))
            except TimeIsUp:
                self._time_is_up = True
            else:
                missing -= len(parts[-1])
        if missing > 0 and not may_be_less:
            raise TimeIsUp
        self._data, self._data_start = b"".join(parts), self.start

    def _drop_below(self, start: Offset) -> None:
        self.start = max(self.start, start)


def _no_boundary(start: Offset, searched_bytes: int) -> CorruptRecord:
    return CorruptRecord(
        "no record boundary",
        offset=start,
        expected=f"one within {searched_bytes} bytes, twice the size limit of a record",
        found="none",
        hint="Raise max_record_bytes if this log holds larger records; else compare it with another replica.",
    )


def _reaches_past_end(at: Offset, size: int, end: Offset) -> CorruptRecord:
    return CorruptRecord(
        "the last record reaches past the end of the master's log",
        offset=at,
        expected=f"at most {end - at} bytes",
        found=f"{size}",
        hint="Compare the record with another replica. A master that is itself a slave may be receiving it: retry.",
    )
