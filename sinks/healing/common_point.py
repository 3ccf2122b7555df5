"""Find the last point that a replica and its master have in common. Pure.

Histories part once: up to some point both hold the same, from there on they do not. So the ledger's rows, each with the
checksum of the master's bytes of its range, agree up to one of them. The search looks back from the newest in steps of
1, 2, 4, 8 … and then halves the rest. It compares about 2·log2(d) rows, where d is how many rows the point is away.
Inside the first row that differs, the records themselves are compared, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sinks.values.continuity import Link
from sources.offsets import Offset, OffsetRange

_Row = TypeVar("_Row")


def last_agreeing(rows: Sequence[_Row], agrees: Callable[[_Row], bool]) -> _Row | None:
    """The last of `rows` that agrees, given that all before it agree and none behind it; None if none does.

    `agrees` is called at most 2·log2(d) + 2 times, if that row is the d-th from the end.
    """
    differs, at, step = len(rows), 0, 1
    while differs and not agrees(rows[at := max(len(rows) - step, 0)]):
        differs, step = at, 2 * step
    if not differs:
        return None
    while differs - at > 1:
        middle = (at + differs) // 2
        if agrees(rows[middle]):
            at = middle
        else:
            differs = middle
    return rows[at]


def last_equal(
    records: Iterable[tuple[OffsetRange, bytes]], master: Iterable[memoryview], start: Offset, *, counts_bytes: bool
) -> Link | None:
    """The last of `records`, in order, before the first one that differs from the master's; None if the first differs.

    `master` gives the master's bytes from `start` on, in pieces, each valid until the next is requested. `counts_bytes`
    says whether offsets count bytes; otherwise the records of both are taken to follow one another.
    """
    found = None
    window, at = _Window(master, start if counts_bytes else Offset(0)), 0
    for covered, raw in records:
        place = covered if counts_bytes else OffsetRange(Offset(at), Offset(at + len(raw)))
        at += len(raw)
        if window.take(place) != raw:
            break
        found = (covered, raw)
    return None if found is None else Link.of(*found)


def last_left(both: Iterable[tuple[Offset, bytes | None, bytes | None]]) -> Link | None:
    """The last record that both have, before the first that differs or that we lack, if the master drops records.

    `both` are offset, our bytes and the master's, in order. A record that the master has dropped says nothing.
    """
    found = None
    for offset, ours, theirs in both:
        if theirs is None:
            continue
        if ours != theirs:
            break
        found = (OffsetRange(offset, Offset(offset + 1)), theirs)
    return None if found is None else Link.of(*found)


class _Window:
    """Takes ranges, in order, from a stream of bytes."""

    def __init__(self, pieces: Iterable[memoryview], start: Offset) -> None:
        self._pieces = iter(pieces)
        self._start = int(start)
        self._bytes = bytearray()

    def take(self, wanted: OffsetRange) -> bytes:
        """The bytes of `wanted`, or fewer if the stream ends. Bytes before it are discarded."""
        while self._start + len(self._bytes) < wanted.end:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._bytes += piece
        del self._bytes[: wanted.start - self._start]
        self._start = wanted.start
        return bytes(self._bytes[: wanted.size])
