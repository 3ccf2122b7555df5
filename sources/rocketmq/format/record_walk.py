"""A log's bytes as chunks of records and, for readers that get past it, the damage between them. No I/O of its own.

All logs are walked the same way, from files or as a stream, whether or not damage stops the reader: decode a window and
yield the sound records it begins with. If something is wrong with the next record, raise the error, or yield the bytes
up to the next sound record and go on there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Final, Protocol

from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.columns.codec import DecodedRecords

SMALL_WINDOW_BYTES: Final = 64 * 1024
"""What is decoded at once behind damage. More damage may be near, and each time a window is decoded again."""


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
