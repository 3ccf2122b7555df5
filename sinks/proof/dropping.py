"""A master that drops records of its log: what it has left of a range, beside what was replicated.

Compaction takes records that newer ones of the same key have made old. Then the master's bytes of a range are other
ones than were replicated, though none of its records is. What can be compared are the records that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from sources.master import Damage, MasterLog
from sources.offsets import END, Offset, OffsetRange

Located: TypeAlias = tuple[Offset, bytes]
"""The offset of a record, and the master's bytes of it."""
_END: Final[Located] = (END, b"")


class Dropping:
    """Whether `master` drops records is asked once, where it first matters: few topics do, and not all may be asked."""

    def __init__(self, master: MasterLog, committed: Offset) -> None:
        self._master = master
        self._committed = committed
        self._answer: bool | None = None

    @property
    def is_known(self) -> bool:
        """That it does was asked before."""
        return self._answer is True

    def does(self) -> bool:
        """Raises as `MasterLog.drops_records`."""
        if self._answer is None:
            self._answer = self._master.drops_records()
        return self._answer

    def records(self, wanted: OffsetRange) -> Iterator[Located]:
        """What the master has left of `wanted`, in order. Raises as `MasterLog.read`, and what is no record."""
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
    """Of each offset that either has what is ours and what is theirs, in order, as both are."""
    mine, other = iter(ours), iter(theirs)
    first, second = next(mine, _END), next(other, _END)
    while (at := min(first[0], second[0])) < END:
        yield at, first[1] if first[0] == at else None, second[1] if second[0] == at else None
        if first[0] == at:
            first = next(mine, _END)
        if second[0] == at:
            second = next(other, _END)
