"""A commit log read from its segment files, while a broker may be appending to it and deleting from its front.

It answers two questions: where the log begins and ends (`bounds`), and what lies in a range (`chunks`). It keeps
nothing between calls but the path, because another process may ask the next question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from sources.bounds import check_within
from sources.errors import CorruptRecord, LogtwinError, SegmentError
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files.log_end import Look, look, look_past_damage
from sources.rocketmq.files.segment_files import Hole, Segment, SegmentMap, list_segments, mapped, parts_of
from sources.rocketmq.files.segment_reader import BOUNDARY_HINT, NO_BOUNDARY, SegmentReader
from sources.rocketmq.files.segment_search import SegmentSearch
from sources.rocketmq.format.commitlog import DEFAULT_LIMITS, Limits
from sources.rocketmq.format.heads import corrupt

SETTLE_S = 1.0
"""How long bytes at the tail may stay without being a whole record before they are an error."""
LOOK_AGAIN_S = 0.05
_How = Callable[[Sequence[Segment], Offset, Limits], Look]
_NOT_ALONE = "A broker deletes only its oldest files: see what else writes to this directory."


class Segments:
    """The commit log in the directory `path`. With `past_damage`, reading goes on behind damage."""

    def __init__(
        self,
        path: Path | str,
        limits: Limits = DEFAULT_LIMITS,
        *,
        past_damage: bool = False,
        settle_s: float = SETTLE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = Path(path)
        self._limits = limits
        self._past_damage = past_damage
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """Return the range from the first file's start to the end of the last whole record; ``[min, min)`` if empty.

        Looks only at what follows `known`, the end that an earlier call gave, or else at the newest file that has data.
        What is wrong at the tail may be a record that the broker is writing, so it is looked at again for the settle
        time. After that it is an error or, with `past_damage`, the log ends behind the last sound record. Raises
        ConfigurationError, SegmentError, CorruptRecord.
        """
        segments, found = self._look(known)
        deadline = self._clock() + self._settle_s
        while found.doubt is not None:
            proven = found.end
            if self._clock() >= deadline:
                if not self._past_damage:
                    raise found.doubt
                segments, found = self._look(proven, look_past_damage)
                break
            self._sleep(LOOK_AGAIN_S)
            segments, found = self._look(proven)
            if found.end > proven:
                break  # the record was completed; a new doubt has its own time
        return OffsetRange(segments[0].start, found.end)

    def _look(self, known: Offset | None, how: _How = look) -> tuple[Sequence[Segment], Look]:
        for start_from in (known, None):  # retention may take the file that holds `known`, but never the newest
            with suppress(FileNotFoundError):
                return self._look_once(start_from, how)
        raise SegmentError(
            f"the segment files in {self._path} disappear while they are looked at",
            expected="files that stay until retention deletes them from the front",
            hint=_NOT_ALONE,
        )

    def _look_once(self, known: Offset | None, how: _How) -> tuple[Sequence[Segment], Look]:
        segments = self._list()
        start = known if known is not None and _is_end_of_data(segments, known) else _newest_data(segments)
        return segments, how([segment for segment in segments if segment.end > start], start, self._limits)

    def _list(self) -> tuple[Segment, ...]:
        return list_segments(self._path, holes=self._past_damage)

    def chunks(
        self, owned: OffsetRange, boundary: bool, chunk_bytes: int, upto: Offset | None = None
    ) -> Iterator[Chunk | Damage]:
        """Yield the records that start in `owned`, in order, about `chunk_bytes` of the log at a time.

        With `boundary` the first record must start at ``owned.start``; otherwise reading begins at the first record at
        or after it. The last record may reach past ``owned.end``. `upto` is the log's end if the caller knows it;
        without it, `owned` must lie below an end that `bounds` gave. A chunk's `raw` is a view of the mapped file and
        is released when the next chunk is requested. With `past_damage`, anything that is not a sound record, or is in
        no file, comes as Damage, which never passes ``owned.end``.

        Raises BelowMinimum, AboveMaximum, CorruptRecord, SegmentError, ConfigurationError.
        """
        segments = self._list()
        check_within(owned, _held_by(segments) if upto is None else OffsetRange(min(segments[0].start, upto), upto))
        for part in parts_of(segments, owned):
            if isinstance(part, Hole):
                yield Damage(_inside(part, owned), None, part.error())
            else:
                yield from self._file_chunks(part, owned, boundary, chunk_bytes, upto)

    def raw(self, wanted: OffsetRange, piece_bytes: int) -> Iterator[memoryview]:
        """Yield the bytes of exactly `wanted`, unchecked, in pieces that are released when the next is requested.

        Raises BelowMinimum, AboveMaximum, SegmentError (MissingSegment: also with `past_damage`), ConfigurationError.
        """
        segments = self._list()
        check_within(wanted, _held_by(segments))
        for part in parts_of(segments, wanted):
            if isinstance(part, Hole):
                raise part.error()
            with self._opened(part) as file:
                for piece in _inside(part, wanted).in_pieces(piece_bytes):
                    with file.view(piece.start, piece.end) as view:
                        yield view
                    file.forget(piece.end)

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        """Return the first sound record or start of a file at or after `offset`; at most `maximum`, the log's end.

        Raises BelowMinimum, CorruptRecord, SegmentError, ConfigurationError.
        """
        return self._boundary_in(self._list(), offset, maximum)

    def pieces(self, wanted: OffsetRange, size_bytes: int) -> Iterator[OffsetRange]:
        """Cut `wanted` into pieces of `size_bytes`, cut at the next record boundary. Raises as `boundary_after`."""
        segments = self._list()
        start = wanted.start
        while start < wanted.end:
            end = self._boundary_in(segments, Offset(start + size_bytes), wanted.end)
            yield OffsetRange(start, end)
            start = end

    def _boundary_in(self, segments: Sequence[Segment], offset: Offset, maximum: Offset) -> Offset:
        if offset >= maximum:
            return maximum
        check_within(OffsetRange(offset, maximum), _held_by(segments))
        segment = next(segment for segment in segments if offset < segment.end)
        with self._opened(segment) as file:
            return SegmentSearch(file, self._limits).boundary_after(offset, maximum)

    def _opened(self, segment: Segment) -> SegmentMap:
        try:
            return mapped(segment)
        except FileNotFoundError as error:
            raise self._gone(segment) from error

    def _file_chunks(
        self, segment: Segment, owned: OffsetRange, boundary: bool, chunk_bytes: int, upto: Offset | None
    ) -> Iterator[Chunk | Damage]:
        with self._opened(segment) as file:
            reader = SegmentReader(file, owned, self._limits, lambda at: self._ends_early(segment, at, owned, upto))
            yield from reader.chunks(boundary=boundary, chunk_bytes=chunk_bytes, past_damage=self._past_damage)

    def _ends_early(self, segment: Segment, at: Offset, owned: OffsetRange, upto: Offset | None) -> CorruptRecord:
        """Say why there are zeros at `at`, inside the range to read. Raises AboveMaximum if the log ends there now."""
        held = self.bounds() if upto is None else OffsetRange(owned.start, upto)
        check_within(owned, held)
        if at == owned.start:
            return corrupt(segment, at, NO_BOUNDARY, "a record", "zeros", BOUNDARY_HINT)
        problem = f"a hole in the log: it goes on to offset {held.end}, but no record starts here"
        return corrupt(segment, at, problem, "a record", f"zeros; {segment.end:020d} is the next file")

    def _gone(self, segment: Segment) -> LogtwinError:
        """Say why a file that was there is missing: retention took it, or somebody else."""
        segments = self._list()
        held = _held_by(segments)
        if segment.start < held.start:
            check_within(OffsetRange(segment.start, segment.start), held)
        for part in parts_of(segments, OffsetRange(segment.start, segment.end)):
            if isinstance(part, Hole):
                return part.error()
        return SegmentError(
            f"segment file {segment.path} has gone",
            offset=segment.start,
            expected="a file that stays until retention deletes it from the front",
            hint=_NOT_ALONE,
        )


def _inside(part: Segment | Hole, wanted: OffsetRange) -> OffsetRange:
    return OffsetRange(max(part.start, wanted.start), min(part.end, wanted.end))


def _held_by(segments: Sequence[Segment]) -> OffsetRange:
    """Return the range that the files have room for; the log may end earlier."""
    return OffsetRange(segments[0].start, segments[-1].end)


def _is_end_of_data(segments: Sequence[Segment], known: Offset) -> bool:
    """Whether data still ends at or after `known`. If a master lost its tail, there are zeros before that.

    A record's last byte is not zero, unless it has no properties; then the answer is no, which costs only time.
    """
    holder = next((segment for segment in segments if segment.start <= known < segment.end), None)
    if holder is None:
        return False
    if known == holder.start:
        return holder.has_data()
    return any(holder.read(Offset(known - 1), 1))


def _newest_data(segments: Sequence[Segment]) -> Offset:
    """Return the start of the newest file that has data, or of the first file if none has."""
    return next((segment.start for segment in reversed(segments) if segment.has_data()), segments[0].start)
