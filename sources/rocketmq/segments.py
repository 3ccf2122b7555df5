"""A commit log read from its segment files, while a broker may be appending to it and deleting from its front.

Two questions are answered: where the log begins and ends (`bounds`), and what lies in a range (`chunks`). Nothing is
kept between calls but the path: another process may ask the next question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from sources.bounds import check_within
from sources.errors import LogtwinError, SegmentError
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.commitlog import DEFAULT_LIMITS, Limits
from sources.rocketmq.heads import corrupt
from sources.rocketmq.log_end import Look, look
from sources.rocketmq.segment_files import Segment, SegmentMap, list_segments, mapped
from sources.rocketmq.segment_reader import BOUNDARY_HINT, NO_BOUNDARY, NoMoreData, SegmentReader

SETTLE_S = 1.0
"""How long bytes at the tail that are no whole record may stay so, before they are an error."""
LOOK_AGAIN_S = 0.05
_NOT_ALONE = "A broker deletes only its oldest files: see what else writes to this directory."


class Segments:
    """The commit log in the directory `path`."""

    def __init__(
        self,
        path: Path | str,
        limits: Limits = DEFAULT_LIMITS,
        *,
        settle_s: float = SETTLE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = Path(path)
        self._limits = limits
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """From the first file's first byte to the end of the last whole record; an empty log is ``[min, min)``.

        Only what follows `known`, the end that an earlier call gave, is looked at, or else the newest file that has
        data. What is wrong at the tail may be a record that the broker is writing: it is looked at again for the
        settle time. Raises ConfigurationError, SegmentError, CorruptRecord.
        """
        segments, found = self._look(known)
        deadline = self._clock() + self._settle_s
        while found.doubt is not None:
            if self._clock() >= deadline:
                raise found.doubt
            self._sleep(LOOK_AGAIN_S)
            proven = found.end
            segments, found = self._look(proven)
            if found.end > proven:
                break  # it was a record on its way; what is doubtful now has its own time
        return OffsetRange(segments[0].start, found.end)

    def _look(self, known: Offset | None) -> tuple[Sequence[Segment], Look]:
        for start_from in (known, None):  # retention may take the file that holds `known`, but never the newest
            with suppress(FileNotFoundError):
                return self._look_once(start_from)
        raise SegmentError(
            f"the segment files in {self._path} disappear while they are looked at",
            expected="files that stay until retention deletes them from the front",
            hint=_NOT_ALONE,
        )

    def _look_once(self, known: Offset | None) -> tuple[Sequence[Segment], Look]:
        segments = list_segments(self._path)
        start = known if known is not None and _is_end_of_data(segments, known) else _newest_data(segments)
        return segments, look([segment for segment in segments if segment.end > start], start, self._limits)

    def chunks(
        self, owned: OffsetRange, boundary: bool, chunk_bytes: int, upto: Offset | None = None
    ) -> Iterator[Chunk]:
        """The records that start in `owned`, in order, about `chunk_bytes` of the log at a time.

        With `boundary` the first record must start at ``owned.start``, else reading begins at the first record at or
        after it. The last record may reach past ``owned.end``. `upto` is the log's end if the caller knows it; without
        it, `owned` must lie below an end that `bounds` gave. A chunk's `raw` is a view of the mapped file and is
        released when the next chunk is asked for.

        Raises BelowMinimum, AboveMaximum, CorruptRecord, SegmentError, ConfigurationError.
        """
        segments = list_segments(self._path)
        check_within(owned, _held_by(segments) if upto is None else OffsetRange(min(segments[0].start, upto), upto))
        for segment in segments:
            if segment.end > owned.start and segment.start < owned.end:
                yield from self._file_chunks(segment, owned, boundary, chunk_bytes, upto)

    def raw(self, wanted: OffsetRange, piece_bytes: int) -> Iterator[memoryview]:
        """The bytes of exactly `wanted`, unchecked, in pieces that are released when the next is asked for.

        Raises BelowMinimum, AboveMaximum, SegmentError, ConfigurationError.
        """
        segments = list_segments(self._path)
        check_within(wanted, _held_by(segments))
        for segment in segments:
            if segment.end > wanted.start and segment.start < wanted.end:
                inside = OffsetRange(max(wanted.start, segment.start), min(wanted.end, segment.end))
                with self._opened(segment) as file:
                    for piece in inside.in_pieces(piece_bytes):
                        with file.view(piece.start, piece.end) as view:
                            yield view
                        file.forget(piece.end)

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        """The first record boundary at or after `offset`, or `maximum`, the log's end, where that comes first.

        Raises BelowMinimum, CorruptRecord, SegmentError, ConfigurationError.
        """
        return self._boundary_in(list_segments(self._path), offset, maximum)

    def pieces(self, wanted: OffsetRange, size_bytes: int) -> Iterator[OffsetRange]:
        """`wanted` in consecutive pieces of `size_bytes`, each cut at the next record boundary. Raises as above."""
        segments = list_segments(self._path)
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
            return min(SegmentReader(file, self._limits).first_record(offset, boundary=False), maximum)

    def _opened(self, segment: Segment) -> SegmentMap:
        try:
            return mapped(segment)
        except FileNotFoundError as error:
            raise self._gone(segment) from error

    def _file_chunks(
        self, segment: Segment, owned: OffsetRange, boundary: bool, chunk_bytes: int, upto: Offset | None
    ) -> Iterator[Chunk]:
        with self._opened(segment) as file:
            try:
                yield from SegmentReader(file, self._limits).chunks(owned, boundary, chunk_bytes)
            except NoMoreData as end:
                raise self._ends_early(segment, end.at, owned, upto) from None

    def _ends_early(self, segment: Segment, at: Offset, owned: OffsetRange, upto: Offset | None) -> LogtwinError:
        """Why there are zeros at `at`, inside the range to read."""
        held = self.bounds() if upto is None else OffsetRange(owned.start, upto)
        check_within(owned, held)
        if at == owned.start:
            return corrupt(segment, at, NO_BOUNDARY, "a record", "zeros", BOUNDARY_HINT)
        problem = f"a hole in the log: it goes on to offset {held.end}, but no record starts here"
        return corrupt(segment, at, problem, "a record", f"zeros; {segment.end:020d} is the next file")

    def _gone(self, segment: Segment) -> LogtwinError:
        """Why a file that was there is not: retention took it, or somebody else."""
        held = _held_by(list_segments(self._path))
        if segment.start < held.start:
            check_within(OffsetRange(segment.start, segment.start), held)
        return SegmentError(
            f"segment file {segment.path} has gone",
            offset=segment.start,
            expected="a file that stays until retention deletes it from the front",
            hint=_NOT_ALONE,
        )


def _held_by(segments: Sequence[Segment]) -> OffsetRange:
    """What the files have room for; the log may end before."""
    return OffsetRange(segments[0].start, segments[-1].end)


def _is_end_of_data(segments: Sequence[Segment], known: Offset) -> bool:
    """Whether data still ends at or after `known`. A master that lost its tail has zeros before it.

    A record's last byte is not zero, unless it has no properties; then the answer is no, which costs only time.
    """
    holder = next((segment for segment in segments if segment.start <= known < segment.end), None)
    if holder is None:
        return False
    if known == holder.start:
        return holder.has_data()
    return any(holder.read(Offset(known - 1), 1))


def _newest_data(segments: Sequence[Segment]) -> Offset:
    """Start of the newest file that has data, or of the first file if none has."""
    return next((segment.start for segment in reversed(segments) if segment.has_data()), segments[0].start)
