"""Read the master's bytes range by range, in order, for a comparison. A range that was equal is not read again.

If offsets count bytes, one stream of the master serves all ranges: over HA each request would be a connection. If they
are ids, nothing says how many bytes a range has, so each is requested by itself, which is cheap with files.

Some masters drop records of their log: compaction of a Kafka topic removes records if a newer one has the same key.
Then the master's bytes of a range differ from those that were replicated, though none of its records does. Only the
records that it still has can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from sources.master import Damage, MasterLog
from sources.offsets import END, Offset, OffsetRange

Located: TypeAlias = tuple[Offset, bytes]
"""The offset of a record, and the master's bytes of it."""
_END: Final[Located] = (END, b"")


class Dropping:
    """Asks `master` once, when it first matters, whether it drops records: few topics do, and not all may be asked."""

    def __init__(self, master: MasterLog, committed: Offset) -> None:
        self._master = master
        self._committed = committed
        self._answer: bool | None = None

    @property
    def is_known(self) -> bool:
        """Whether the master was asked before, and drops records."""
        return self._answer is True

    def does(self) -> bool:
        """Whether the master drops records. Raises as `MasterLog.drops_records` does."""
        if self._answer is None:
            self._answer = self._master.drops_records()
        return self._answer

    def records(self, wanted: OffsetRange) -> Iterator[Located]:
        """The records that the master still has in `wanted`, in order.

        Raises as `MasterLog.read` does, and the error of bytes that are no record.
        """
        for piece in self._master.read(wanted, committed=self._committed, boundary=True):
            if isinstance(piece, Damage):
                raise piece.error
            at = 0
            offsets, lengths = piece.records.column("offset"), self._master.lengths(piece.records)
            for offset, length in zip(offsets.to_pylist(), lengths.tolist(), strict=True):
                yield offset, bytes(piece.raw[at : at + length])
                at += length


def side_by_side(
    ours: Iterable[Located], theirs: Iterable[Located]
) -> Iterator[tuple[Offset, bytes | None, bytes | None]]:
    """Merge two ordered sequences of records: each offset that either has, our bytes and theirs, None if missing."""
    mine, other = iter(ours), iter(theirs)
    first, second = next(mine, _END), next(other, _END)
    while (at := min(first[0], second[0])) < END:
        yield at, first[1] if first[0] == at else None, second[1] if second[0] == at else None
        if first[0] == at:
            first = next(mine, _END)
        if second[0] == at:
            second = next(other, _END)


class MasterBytes(Protocol):
    """The master's bytes, requested range by range in order. Parts that were not taken may be requested again."""

    def passes(self, wanted: OffsetRange, expected: memoryview) -> bool:
        """Whether the bytes of `wanted` equal `expected`. They are taken if so; otherwise none are."""

    def parts(self, wanted: OffsetRange) -> Iterator[memoryview]:
        """Take the bytes of `wanted`, none behind the end of the master's log. A part is valid until the next one."""

    @property
    def dropping(self) -> Dropping | None:
        """Access to the records that the master still has, if it may have dropped some; None if it never does."""


@contextmanager
def master_bytes(master: MasterLog, wanted: OffsetRange, committed: Offset) -> Iterator[MasterBytes]:
    """Open the master's bytes in `wanted`. Reading them raises what `master.raw` raises."""
    if not master.log_id.counts_bytes:
        dropping = Dropping(master, committed) if master.traits.has_free_offsets else None
        yield RangedBytes(lambda part: master.raw(part, committed=committed), dropping)
        return
    with closing(master.raw(wanted, committed=committed)) as pieces:
        yield StreamedBytes(pieces)


class StreamedBytes:
    """The bytes of a log whose offsets count bytes, from `pieces`, each valid until the next is requested."""

    dropping = None

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")
        self._returned: list[memoryview] = []  # pieces that come before the others, the next one last

    def passes(self, wanted: OffsetRange, expected: memoryview) -> bool:
        at = 0
        for part in self.parts(wanted):
            if not _are_equal(part, expected[at : at + len(part)]):
                self._give_back(bytes(expected[:at]), bytes(part))
                return False
            at += len(part)
        if at != len(expected):
            self._give_back(bytes(expected[:at]))
        return at == len(expected)

    def parts(self, wanted: OffsetRange) -> Iterator[memoryview]:
        count = wanted.size
        while count and (len(self._rest) or self._refill()):
            part, self._rest = self._rest[:count], self._rest[count:]
            count -= len(part)
            yield part

    def _give_back(self, *taken: bytes) -> None:
        self._returned += [self._rest, *(memoryview(part) for part in reversed(taken))]
        self._rest = memoryview(b"")

    def _refill(self) -> bool:
        while self._returned and not len(self._rest):
            self._rest = self._returned.pop()
        if not len(self._rest):
            self._rest = next(self._pieces, memoryview(b""))
        return bool(len(self._rest))


class RangedBytes:
    """The bytes of any log; `raw` gives those of a range."""

    def __init__(self, raw: Callable[[OffsetRange], Generator[memoryview]], dropping: Dropping | None = None) -> None:
        self._raw = raw
        self.dropping = dropping

    def passes(self, wanted: OffsetRange, expected: memoryview) -> bool:
        at = 0
        with closing(self._raw(wanted)) as parts:
            for part in parts:
                if not _are_equal(part, expected[at : at + len(part)]):
                    return False
                at += len(part)
        return at == len(expected)

    def parts(self, wanted: OffsetRange) -> Iterator[memoryview]:
        with closing(self._raw(wanted)) as parts:
            yield from parts


def _are_equal(one: memoryview, other: memoryview) -> bool:
    # memoryviews compare item by item, which is slow; Arrow's buffers compare memory
    return bool(pa.py_buffer(one).equals(pa.py_buffer(other)))
