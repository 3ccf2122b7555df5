"""The records of one segment file, decoded a chunk at a time from the mapped file, which is never copied."""

from __future__ import annotations

from collections.abc import Iterator

from sources.errors import CorruptRecord
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange
from sources.rocketmq import columns
from sources.rocketmq.commitlog import HEAD, Limits, find_record
from sources.rocketmq.heads import corrupt, head_size, hop_messages, in_file
from sources.rocketmq.segment_files import SegmentMap

NO_BOUNDARY = "no record starts at the offset to read from"
BOUNDARY_HINT = (
    "The position to read from is no record boundary of this log: it is another broker's log, or it was rewritten. "
    "Compare the log id and the master's history before you go on."
)


class NoMoreData(Exception):
    """A record should start at `at`, and eight zero bytes stand there."""

    def __init__(self, at: Offset) -> None:
        super().__init__(at)
        self.at = at


class SegmentReader:
    """Reads a mapped segment file. All its methods raise CorruptRecord, naming the file."""

    def __init__(self, file: SegmentMap, limits: Limits) -> None:
        self._file = file
        self._limits = limits

    def chunks(self, owned: OffsetRange, boundary: bool, chunk_bytes: int) -> Iterator[Chunk]:
        """The file's records that start in `owned`, as `Segments.chunks` gives them. Raises NoMoreData."""
        at = self.first_record(owned.start, boundary)
        while at < min(owned.end, self._file.segment.end):
            decoded = self._decode(at, owned.end, chunk_bytes)
            with self._file.view(at, decoded.end) as raw:
                yield Chunk(OffsetRange(at, decoded.end), decoded.records, raw)
            at = decoded.end
            self._file.forget(at)

    def first_record(self, start: Offset, boundary: bool) -> Offset:
        """The first record boundary at or after `start`; the file's end where no record starts any more."""
        if start <= self._file.segment.start:
            return self._file.segment.start
        if not boundary:
            return self._find_record(start)
        try:
            self._head_size(start)
        except CorruptRecord as error:
            expected, found = error.expected, error.found
            raise corrupt(self._file.segment, start, NO_BOUNDARY, expected, found, BOUNDARY_HINT) from error
        return start

    def _find_record(self, start: Offset) -> Offset:
        """A body may hold what looks like a record of its very place. So the search begins that far back that the
        record around `start` begins later, and hops on from what it finds: heads, not bodies, decide.
        """
        base = self._file.segment.start
        at = Offset(max(base, start - self._limits.max_record_bytes))
        while True:
            found = at if at == base else self._search(at)
            if found is None:
                return self._file.segment.end
            landed = self._hop(found, start)
            if landed >= start:
                return landed
            at = Offset(max(landed, found + 1))  # what was found is no record, or a record on the way is damaged

    def _search(self, start: Offset) -> Offset | None:
        with self._file.rest(start) as rest:
            return find_record(rest, start, self._limits)

    def _hop(self, at: Offset, enough: Offset) -> Offset:
        """From the record at `at` to the first at or after `enough`; less where a hop leads to no record."""
        segment = self._file.segment
        with self._file.rest(segment.start) as view:
            landed, _ = hop_messages(view, segment.start, at, enough, self._limits.max_record_bytes)
        return segment.end if landed < enough and self._ends_file(landed) else landed

    def _ends_file(self, at: Offset) -> bool:
        """Whether a blank stands at `at`: only a blank reaches the end of its file."""
        try:
            return at + self._head_size(at) == self._file.segment.end
        except CorruptRecord:
            return False

    def _head_size(self, at: Offset) -> int:
        """As `heads.head_size`: 0 where the data ends. Raises CorruptRecord."""
        with self._file.rest(at) as rest:
            return head_size(self._file.segment, rest, at, self._limits)

    def _decode(self, at: Offset, stop: Offset, chunk_bytes: int) -> columns.Decoded:
        """About `chunk_bytes` of records from `at` on, at least one."""
        size = self._head_size(at)
        if not size:
            raise NoMoreData(at)
        end = Offset(min(at + max(size, chunk_bytes), self._file.segment.end))
        with self._file.view(at, end) as window:
            try:
                return columns.decode(window, at, stop, self._limits)
            except CorruptRecord as error:
                if error.offset is not None and not any(window[error.offset - at :][: HEAD.size]):
                    raise NoMoreData(Offset(error.offset)) from None
                raise in_file(error, self._file.segment) from None
