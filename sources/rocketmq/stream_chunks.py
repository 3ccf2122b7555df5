"""Bytes as they come from a master -> chunks of whole records. No I/O of its own.

A stream is cut anywhere, records are not: what arrives is gathered until `chunk_bytes` are there (or what is left of
the range), the whole records among them become a chunk, and the rest stays for the next one. Only for a record that is
larger than that more is gathered, up to the limit of a record, which is checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sources.errors import CorruptRecord
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange
from sources.rocketmq import columns
from sources.rocketmq.commitlog import HEAD, V1, V2, Limits, check_head, find_record, read_head
from sources.rocketmq.layout import LEAD


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the master's log ends: as it is known, and how to ask again, because a log grows."""

    known: Offset
    ask: Callable[[], Offset]

    def lies_below(self, wanted: int) -> Offset | None:
        """The log's end where it is below `wanted`, asked for again in that case; None where it is not."""
        if wanted <= self.known:
            return None
        end = self.ask()
        return end if end < wanted else None


def chunk_stream(
    pieces: Iterator[bytes],
    owned: OffsetRange,
    *,
    boundary: bool,
    chunk_bytes: int,
    limits: Limits,
    log_end: LogEnd,
) -> Iterator[Chunk]:
    """`MasterLog.read` of a stream, without end, that begins at byte ``owned.start`` of the log.

    A search for the first record passes over what is no sound record, so it could pass over a damaged one. Therefore
    whoever begins with a search also proves, at the other end, that the reader who goes on there will find the first
    record that is not in this range.

    Takes from `pieces` only what the log is known to hold. Raises CorruptRecord, and what `pieces` raises.
    """
    gathered = _Gathered(pieces, owned.start)
    if boundary:
        _check_boundary(gathered, limits, log_end)
    else:
        _skip_to_record(gathered, owned, chunk_bytes, limits, log_end)
    while gathered.start < owned.end:
        gathered.gather(min(chunk_bytes, owned.end - gathered.start))
        decoded = columns.decode(gathered.data, gathered.start, owned.end, limits)
        if decoded.end == gathered.start:
            _gather_record(gathered, limits, log_end)
            continue
        if not boundary and owned.end <= decoded.end < log_end.known:
            _prove_findable(gathered, owned.end, decoded.end, limits, log_end)
        yield Chunk(
            OffsetRange(gathered.start, decoded.end),
            decoded.records,
            memoryview(gathered.data)[: decoded.end - gathered.start],
        )
        gathered.drop_below(decoded.end)


class _Gathered:
    """`data`: the log's bytes from `start` on that have come and are not used up."""

    def __init__(self, pieces: Iterator[bytes], start: Offset) -> None:
        self._pieces = pieces
        self.start = start
        self.data = b""

    @property
    def end(self) -> Offset:
        return Offset(self.start + len(self.data))

    def gather(self, size: int) -> None:
        """At least `size` bytes of data; joined once, however many pieces they come in."""
        missing = size - len(self.data)
        parts = [self.data]
        while missing > 0:
            parts.append(next(self._pieces))
            missing -= len(parts[-1])
        if len(parts) > 1:
            self.data = b"".join(parts)

    def drop_below(self, start: Offset) -> None:
        self.data = self.data[start - self.start :]
        self.start = start


def _check_boundary(gathered: _Gathered, limits: Limits, log_end: LogEnd) -> None:
    """A head that is none, at the very start, means another log more often than a broken one."""
    if log_end.lies_below(gathered.start + HEAD.size) is not None:
        return  # no room for a record: an error further on
    gathered.gather(HEAD.size)
    try:
        check_head(*read_head(gathered.data, 0), gathered.start, limits)
    except CorruptRecord as error:
        raise CorruptRecord(
            "no record starts at the offset to read from",
            offset=gathered.start,
            expected=error.expected,
            found=error.found,
            hint="The position is no record boundary of this master's log: it is another broker's, or it was "
            "rewritten. Compare the log id and the master's history before you go on.",
        ) from error


def _skip_to_record(gathered: _Gathered, owned: OffsetRange, chunk_bytes: int, limits: Limits, log_end: LogEnd) -> None:
    """Drop what precedes the first record boundary; all of `owned` where it holds none: it lies inside one record."""
    most = 2 * limits.max_record_bytes  # the rest of one record, and the next one whole
    wanted = min(chunk_bytes, log_end.known - gathered.start)
    while True:
        gathered.gather(wanted)
        if _stands_in_place(gathered):
            return None
        found = find_record(gathered.data, gathered.start, limits)
        if found is not None:
            return gathered.drop_below(found)
        if len(gathered.data) >= most:
            raise _no_boundary(gathered.start, most)
        if gathered.end >= log_end.known:
            return gathered.drop_below(max(owned.end, gathered.start))
        wanted = min(2 * len(gathered.data), most, log_end.known - gathered.start)


def _no_boundary(start: Offset, searched_bytes: int) -> CorruptRecord:
    return CorruptRecord(
        "no record boundary",
        offset=start,
        expected=f"one within {searched_bytes} bytes, twice the size limit of a record",
        found="none",
        hint="Raise max_record_bytes if this log holds larger records; else compare it with another replica.",
    )


def _stands_in_place(gathered: _Gathered) -> bool:
    """Whether the data begins with what says that it is the record of this place: sound or not, it is one."""
    if len(gathered.data) < LEAD.size:
        return False
    _, magic, _, _, _, _, place, _, _ = LEAD.unpack_from(gathered.data)
    return magic in (V1, V2) and bool(place == gathered.start)


def _prove_findable(gathered: _Gathered, search_from: Offset, record: Offset, limits: Limits, log_end: LogEnd) -> None:
    """A search from `search_from` on finds the record at `record`, of which all is gathered for it."""
    gathered.gather(record + HEAD.size - gathered.start)
    size, magic = read_head(gathered.data, record - gathered.start)
    check_head(size, magic, record, limits)
    _refuse_past_end(record, size, log_end)
    gathered.gather(record + size - gathered.start)
    within = memoryview(gathered.data)[search_from - gathered.start : record + size - gathered.start]
    found = find_record(within, search_from, limits)
    if found != record:
        raise CorruptRecord(
            "the record behind the range would be passed over",
            offset=record,
            expected=f"a search from {search_from} to find it",
            found="nothing" if found is None else f"what looks like a record at {found}",
            hint="The record is damaged: compare it with another replica, or read without parallel_reads to see how.",
        )


def _gather_record(gathered: _Gathered, limits: Limits, log_end: LogEnd) -> None:
    """All of the record at the start of the data, whose head has come and passed its checks, or its head."""
    size = HEAD.size if len(gathered.data) < HEAD.size else read_head(gathered.data, 0)[0]
    _refuse_past_end(gathered.start, size, log_end)
    gathered.gather(size)


def _refuse_past_end(record: Offset, size: int, log_end: LogEnd) -> None:
    end = log_end.lies_below(record + size)
    if end is not None:
        raise CorruptRecord(
            "the last record reaches past the end of the master's log",
            offset=record,
            expected=f"at most {end - record} bytes",
            found=f"{size}",
            hint="Compare the record with another replica. A master that is itself a slave may be receiving it: retry.",
        )
