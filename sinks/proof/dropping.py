"""Compare with a master that drops records of its log, such as a compacted Kafka topic.

Compaction removes records if a newer one has the same key. Then the master's bytes of a range differ from those that
were replicated, though none of its records does. Only the records that it still has can be compared.
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
