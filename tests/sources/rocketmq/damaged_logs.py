"""Logs with damage in them, read past it: by path and as a stream. And what must have come of it."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sources.errors import CorruptRecord
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files.segments import Segments
from sources.rocketmq.format.commitlog import decode
from sources.rocketmq.format.layout import Files, Limits
from sources.rocketmq.session.stream_chunks import ChunkReader, LogEnd
from tests.sources.rocketmq.log_reading import kept, owned
from tests.sources.rocketmq.synthetic_log import SyntheticLog

MAX_RECORD_BYTES = 4096


@dataclass(frozen=True)
class Reading:
    """How to read; `read` gives pieces whose bytes stay."""

    chunk_bytes: int = 1000
    past_damage: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES

    @property
    def limits(self) -> Limits:
        return Limits(max_record_bytes=self.max_record_bytes)

    def files(self, log: SyntheticLog) -> Segments:
        return Segments(log.path, self.limits, past_damage=self.past_damage, settle_s=0, seen={})

    def by_path(self, log: SyntheticLog, start: int, end: int) -> list[Chunk | Damage]:
        """Behind the log its broker has gone on, so that what is wrong in it is damage."""
        log.go_on()
        return list(map(kept, self.files(log).chunks(owned(start, end), True, self.chunk_bytes)))

    def by_stream(
        self, log: SyntheticLog, start: int, end: int, *, boundary: bool = True, searched: bool = False
    ) -> list[Chunk | Damage]:
        reader = ChunkReader(
            chunk_bytes=self.chunk_bytes,
            limits=Limits(max_record_bytes=self.max_record_bytes, files=Files(log.minimum, log.file_bytes)),
            log_end=LogEnd(Offset(log.end), ask=lambda: Offset(log.end)),
            past_damage=self.past_damage,
            searched=searched,
        )
        stream = in_frames(log.data()[start - log.minimum :], 700)
        return list(map(kept, reader.read(stream, owned(start, end), boundary=boundary)))


Way = Callable[[Reading, SyntheticLog, int, int], list[Chunk | Damage]]
WAYS: tuple[Way, ...] = (Reading.by_path, Reading.by_stream)


def in_frames(data: bytes, size: int) -> Iterator[bytes]:
    """The stream of `data`; asked for more it fails, as a master that is silent."""
    for at in range(0, len(data), size):
        yield data[at : at + size]
    raise AssertionError("asked for more than the log holds")


def sound_records(log: SyntheticLog) -> list[int]:
    """Of the records that were written, those that still are what was written as far as their own words tell."""
    data, sound = log.data(), []
    for start, end in itertools.pairwise(log.boundaries):
        try:
            record = decode(data, start - log.minimum, Offset(start))
        except CorruptRecord:
            continue
        if record is not None and record.size == end - start:
            sound.append(start)
    return sound


def offsets(pieces: Iterable[Chunk | Damage]) -> list[int]:
    return [at for piece in pieces if isinstance(piece, Chunk) for at in piece.records["offset"].to_pylist()]


def damage(pieces: Iterable[Chunk | Damage]) -> list[tuple[int, int]]:
    """The stretches of damage, adjacent ones as one."""
    joined: list[tuple[int, int]] = []
    for piece in pieces:
        if isinstance(piece, Damage):
            start = joined.pop()[0] if joined and joined[-1][1] == piece.covered.start else piece.covered.start
            joined.append((start, piece.covered.end))
    return joined


def gaps(records: Iterable[int], log: SyntheticLog, start: int, end: int) -> list[tuple[int, int]]:
    """What lies between `records` in [start, end)."""
    ends = dict(itertools.pairwise(log.boundaries))
    found, at = [], start
    for record in records:
        if at < record:
            found.append((at, record))
        at = ends[record]
    return [*found, (at, end)] if at < end else found


def assert_covers(pieces: list[Chunk | Damage], log: SyntheticLog, start: int, end: int) -> None:
    """The pieces join, from `start` to `end`; the bytes are the log's; records are all sound ones, the rest damage."""
    edges = [start, *(piece.covered.end for piece in pieces)]
    assert [piece.covered.start for piece in pieces] == edges[:-1]
    assert edges[-1] == end
    for piece in pieces:
        assert not piece.covered.is_empty
        assert_bytes(piece, log)
    records = [at for at in sound_records(log) if start <= at < end]
    assert offsets(pieces) == records
    assert damage(pieces) == gaps(records, log, start, end)


def assert_bytes(piece: Chunk | Damage, log: SyntheticLog) -> None:
    covered: OffsetRange = piece.covered
    if piece.raw is not None:
        assert bytes(piece.raw) == log.data()[covered.start - log.minimum : covered.end - log.minimum]
        assert covered.size <= MAX_RECORD_BYTES or isinstance(piece, Chunk)
