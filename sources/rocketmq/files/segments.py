"""A commit log read from its segment files, while a broker may be appending to it and deleting from its front.

It answers two questions: where the log begins and ends (`bounds`), and what lies in a range (`chunks`). Another process
may ask the next question, so no answer depends on an earlier one: what is remembered only saves work, waiting, and
repeated warnings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sources.bounds import ToldDoubt, check_within
from sources.errors import CorruptRecord, LogtwinError, SegmentError
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files.log_end import NOWHERE, Look, look, newest
from sources.rocketmq.files.segment_files import Hole, Segment, SegmentMap, list_segments, mapped, parts_of
from sources.rocketmq.files.segment_search import BOUNDARY_HINT, NO_BOUNDARY, SegmentReader, SegmentSearch, corrupt
from sources.rocketmq.format.layout import DEFAULT_LIMITS, Limits

SETTLE_S = 1.0
"""How long bytes at the tail may stay without being a whole record before the log is said to end before them."""
LOOK_AGAIN_S = 0.05
_NOT_ALONE = "A broker deletes only its oldest files: see what else writes to this directory."


@dataclass(slots=True)
class Seen:
    """The end of a log as this process last saw it, and the doubt that it told last."""

    told: ToldDoubt
    look: Look | None = None


_SEEN: Final[dict[Path, Seen]] = {}
"""By directory."""


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
        seen: dict[Path, Seen] = _SEEN,
    ) -> None:
        self._path = Path(path)
        self._seen = seen.setdefault(self._path, Seen(ToldDoubt()))
        self._limits = limits
        self._past_damage = past_damage
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """Return the range from the first file's start to the end of the last proven record; ``[min, min)`` if empty.

        Looks only at what follows `known`, the end that an earlier call in this process gave. Otherwise it looks at the
        newest file that has data; up to a `known` end it does not compare times.
        What is wrong at the tail may be a record that the broker is writing, so it is looked at again for the settle
        time. After that the log ends before it, with a warning. Only if nothing at all is proven, it is an error: then
        nothing shows that this is a commit log. Raises ConfigurationError, SegmentError, CorruptRecord.
        """
        segments, found = self._look(known)
        deadline = self._clock() + self._settle_s
        while found.doubt is not None and not self._seen.told.is_told(found.end, found.doubt):
            proven = found.end
            if self._clock() >= deadline:
                if found.end == segments[0].start:
                    raise found.doubt
                self._seen.told.tell(self._path, found.end, found.doubt)
                break
            self._sleep(LOOK_AGAIN_S)
            segments, found = self._look(proven)
            if found.end > proven:
                break  # the record was completed; a new doubt has its own time
        return OffsetRange(segments[0].start, found.end)

    @property
    def seen_end(self) -> Offset | None:
        """The log end that this process saw last; None if it has not looked yet."""
        return None if self._seen.look is None else self._seen.look.end

    def _look(self, known: Offset | None) -> tuple[Sequence[Segment], Look]:
        for _ in range(2):  # retention never takes the newest file, but the newest that was listed may be old by now
            with suppress(FileNotFoundError):
                return self._look_once(known)
        raise SegmentError(
            f"the segment files in {self._path} disappear while they are looked at",
            expected="files that stay until retention deletes them from the front",
            hint=_NOT_ALONE,
        )

    def _look_once(self, known: Offset | None) -> tuple[Sequence[Segment], Look]:
        segments = list_segments(self._path)
        start, before = segments[newest(segments, self._limits)].start, self._seen.look
        if known is not None and before is not None and known <= before.end and before.still_ends(segments):
            start = max(start, before.end)
        looked_at = [segment for segment in segments if segment.end > start]
        self._seen.look = look(looked_at, start, self._limits, before, known or NOWHERE)
        return segments, self._seen.look

    def chunks(self, owned: OffsetRange, boundary: bool, chunk_bytes: int) -> Generator[Chunk | Damage]:
        """Yield the records that start in `owned`, in order, about `chunk_bytes` of the log at a time.

        With `boundary` the first record must start at ``owned.start``; otherwise reading begins at the first record at
        or after it. The last record may reach past ``owned.end``, which must lie below an end that `bounds` gave. A
        chunk's `raw` is a view of the mapped file and is released when the next chunk is requested. With `past_damage`,
        anything that is not a sound record, or is in no file, comes as Damage, which never passes ``owned.end``.

        Raises BelowMinimum, AboveMaximum, CorruptRecord, SegmentError, ConfigurationError.
        """
        segments = list_segments(self._path)
        check_within(owned, _held_by(segments))
        for part in parts_of(segments, owned):
            if isinstance(part, Segment):
                yield from self._file_chunks(part, owned, boundary, chunk_bytes)
            elif self._past_damage:
                yield Damage(_inside(part, owned), None, part.error())
            else:
                raise part.error()

    def raw(self, wanted: OffsetRange, piece_bytes: int) -> Iterator[memoryview]:
        """Yield the bytes of exactly `wanted`, unchecked, in pieces that are released when the next is requested.

        Raises BelowMinimum, AboveMaximum, SegmentError (MissingSegment: also with `past_damage`), ConfigurationError.
        """
        segments = list_segments(self._path)
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
        return self._boundary_in(list_segments(self._path), offset, maximum)

    def pieces(self, wanted: OffsetRange, size_bytes: int) -> Iterator[OffsetRange]:
        """Cut `wanted` into pieces of `size_bytes`, cut at the next record boundary. Raises as `boundary_after`."""
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
            return SegmentSearch(file, self._limits).boundary_after(offset, maximum)

    def _opened(self, segment: Segment) -> SegmentMap:
        try:
            return mapped(segment)
        except FileNotFoundError as error:
            raise self._gone(segment) from error

    def _file_chunks(
        self, segment: Segment, owned: OffsetRange, boundary: bool, chunk_bytes: int
    ) -> Iterator[Chunk | Damage]:
        with self._opened(segment) as file:
            reader = SegmentReader(file, owned, self._limits, lambda at: self._ends_early(segment, at, owned))
            is_checked = False
            try:
                for piece in reader.chunks(boundary=boundary, chunk_bytes=chunk_bytes, past_damage=self._past_damage):
                    if isinstance(piece, Damage) and not is_checked:
                        self._check_goes_on(segment, owned)
                        is_checked = True
                    yield piece
            except CorruptRecord:
                self._check_goes_on(segment, owned)
                raise

    def _check_goes_on(self, segment: Segment, owned: OffsetRange) -> None:
        """Raise AboveMaximum if `segment` holds the end of the log, and that lies before the end of `owned` now.

        Something is wrong in it, which in the newest file is no damage: the broker has ended its log there since.
        """
        segments = list_segments(self._path)
        if segment.start >= segments[newest(segments, self._limits)].start:
            check_within(owned, self.bounds())

    def _ends_early(self, segment: Segment, at: Offset, owned: OffsetRange) -> CorruptRecord:
        """Return the error for zeros inside the range to read. Raises AboveMaximum if the log ends there now."""
        held = self.bounds()
        check_within(owned, held)
        if at == owned.start:
            return corrupt(segment, at, NO_BOUNDARY, "a record", "zeros", BOUNDARY_HINT)
        problem = f"a hole in the log: it goes on to offset {held.end}, but no record starts here"
        return corrupt(segment, at, problem, "a record", f"zeros; {segment.end:020d} is the next file")

    def _gone(self, segment: Segment) -> LogtwinError:
        """Return the error for a file that has gone. Raises BelowMinimum if retention took it."""
        segments = list_segments(self._path)
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
    """Return the range of the files; the log may end earlier."""
    return OffsetRange(segments[0].start, segments[-1].end)
