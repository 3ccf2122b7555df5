"""A commit log's bytes as chunks of records and damage, and the search for the next sound record behind that. Pure.

A message is recognised by its stored physical offset, which must be its own place; then it must pass every check of
`decode`. A body may hold a copy of a record, even of this log, but that carries the offset of another place. A blank
has no offset of its own. It counts if it ends a file or, if nobody knows how the log is cut into files, if the record
after it is in its place or the bytes end.

The result depends only on the log, not on how much of it is looked at: if more bytes are needed to decide, the answer
says so. So two readers that search from the same place go on at the same record.

All logs are walked the same way (`walk`), from files or as a stream, whether or not damage stops the reader: decode a
window and yield the sound records it begins with. If something is wrong with the next record, raise the error, or yield
the bytes up to the next sound record and go on there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

import numpy as np

from sources.errors import CorruptRecord
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.columns.codec import DecodedRecords
from sources.rocketmq.format.checks import check_head
from sources.rocketmq.format.commitlog import decode
from sources.rocketmq.format.layout import BLANK, DEFAULT_LIMITS, HEAD, LEAD, MESSAGE_HEAD, Buffer, Limits, read_head

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]|\xcb\xd4\x31\x94")
_FIRST_WINDOW_BYTES: Final = 64 * 1024  # most searches end at the next record
SMALL_WINDOW_BYTES: Final = 64 * 1024
"""What is decoded at once behind damage. More damage may be near, and each time a window is decoded again."""


class Found(NamedTuple):
    """No record starts before `offset`. If `is_final`, one starts there or the bytes end; otherwise more are needed."""

    offset: Offset
    is_final: bool


def find_record(buffer: Buffer, start: Offset, limits: Limits = DEFAULT_LIMITS, *, is_end: bool) -> Found:
    """Find the first record at or after byte `start` of the log, which is the first byte of `buffer`.

    With `is_end` the log, or its file, ends with `buffer`; then a record that is not all there is not a record.
    """
    with memoryview(buffer) as view:
        for match in _MAGIC.finditer(view) if np.frombuffer(view, np.uint8).any() else ():
            at = match.start() - 4
            verdict = at >= 0 and _is_record(view, at, start, limits, is_end)
            if verdict is not False:
                return Found(Offset(start + at), verdict is True)
        end = len(view) if is_end else max(0, len(view) - HEAD.size + 1)
        return Found(Offset(start + end), is_end)


def stretch(
    find: Callable[[Offset, int], Found],
    at: Offset,
    *,
    search_from: Offset,
    stop: Offset | None,
    limits: Limits,
) -> Iterator[OffsetRange]:
    """Yield, in pieces of at most a record's limit, what lies from `at` to the first record at or after `search_from`.

    `find` searches that many bytes from an offset on. The stretch ends at `stop`, or where the bytes end, if no record
    comes before. A piece is yielded as soon as it is certain; the bytes before it are not requested again.
    """
    most = limits.max_record_bytes + HEAD.size + LEAD.size  # enough to decide whether a record starts at a place
    size = min(_FIRST_WINDOW_BYTES, most)
    while True:
        found = find(search_from, size)
        end = found.offset if stop is None else min(found.offset, stop)
        is_last = found.is_final or end == stop
        if is_last or end - at >= limits.max_record_bytes:
            yield from OffsetRange(at, end).in_pieces(limits.max_record_bytes)
            at = end
        if is_last:
            return
        search_from, size = end, min(2 * size, most)


def _is_record(view: memoryview, at: int, start: Offset, limits: Limits, is_end: bool) -> bool | None:
    """Whether a record starts at index `at`, which has a magic; None if too little is there to tell."""
    too_little = False if is_end else None
    offset = Offset(start + at)
    if not _has_head(view, at, offset, limits):
        return False
    size, magic = read_head(view, at)
    if magic == BLANK:
        return _is_blank(view, at, size, start, limits, is_end)
    if at + LEAD.size > len(view):
        return too_little
    if _place(view, at) != offset:
        return False
    try:
        return True if decode(view, at, offset, limits) else too_little
    except CorruptRecord:
        return False


def _has_head(view: memoryview, at: int, offset: Offset, limits: Limits) -> bool:
    try:
        check_head(*read_head(view, at), offset, limits)
    except CorruptRecord:
        return False
    return True


def _is_blank(view: memoryview, at: int, size: int, start: Offset, limits: Limits, is_end: bool) -> bool | None:
    end = at + size
    if is_end and end >= len(view):
        return end == len(view)
    if limits.files is not None:
        return True if end <= len(view) else None
    if end + LEAD.size > len(view):
        return False if is_end else None
    return _has_head(view, end, Offset(start + end), limits) and _place(view, end) == start + end


def _place(view: memoryview, at: int) -> int:
    """Which place in the log the message at index `at` says that it has."""
    _, _, place = MESSAGE_HEAD.unpack_from(view, at)
    return int(place)


class Source(Protocol):
    """A source of bytes. It is asked in log order, so it may drop what lies below an offset it was asked for."""

    def decode(self, at: Offset, stop: Offset, size: int) -> DecodedRecords:
        """Decode the records from `at` on that start before `stop`, about `size` bytes: at least one, or its error."""

    def view(self, covered: OffsetRange) -> AbstractContextManager[memoryview]:
        """Give the bytes of `covered`, for as long as the `with` lasts."""

    def damage(self, at: Offset) -> Iterator[OffsetRange]:
        """Yield ranges of bounded size, from the damaged record at `at` to the next sound one."""


def walk(source: Source, at: Offset, stop: Offset, *, chunk_bytes: int, past_damage: bool) -> Iterator[Chunk | Damage]:
    """Yield the records that start in ``[at, stop)``, and the damage among them. Damage may end beyond `stop`.

    Raises the error of the first damaged record unless `past_damage`.
    """
    window_bytes = chunk_bytes
    while at < stop:
        decoded = source.decode(at, stop, window_bytes)
        if decoded.end > at:
            covered = OffsetRange(at, decoded.end)
            with source.view(covered) as raw:
                yield Chunk(covered, decoded.records, raw)
            at = decoded.end
        window_bytes = min(2 * window_bytes, chunk_bytes)
        if decoded.error is None:
            continue
        if not past_damage:
            raise decoded.error
        for covered in source.damage(at):
            with source.view(covered) as raw:
                yield Damage(covered, raw, decoded.error)
            at = covered.end
        window_bytes = min(SMALL_WINDOW_BYTES, chunk_bytes)
