"""Which batches belong to aborted transactions (KIP-98, read_committed).

With the records of a partition its leader lists the aborted transactions that touch them: the producer, and the offset
of the transaction's first record, which may lie before the requested offset. A producer has one transaction at a time;
those of several producers are interleaved. So, over the batches in log order::

    listed with first_offset <= last offset of the batch  ->  its producer is aborting
    abort marker of a producer                            ->  it is aborting no longer
    transactional batch of an aborting producer           ->  aborted, skipped

The rule and its order are those of the Java consumer (CompletedFetch.nextFetchedRecord).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sources.offsets import Offset


@dataclass(frozen=True, slots=True)
class Aborted:
    """An aborted transaction of the producer that began it at `first_offset`."""

    producer_id: int
    first_offset: Offset


class AbortedTransactions:
    """The aborted transactions that are open where reading has got to. `listed` may come in any order."""

    def __init__(self, listed: Iterable[Aborted]) -> None:
        self._to_come = deque(sorted(listed, key=lambda one: one.first_offset))
        self._aborting: set[int] = set()

    def go_to(self, last_offset: Offset) -> None:
        """Move on to a batch. Call it for each batch that has a producer, in log order, before asking about it."""
        while self._to_come and self._to_come[0].first_offset <= last_offset:
            self._aborting.add(self._to_come.popleft().producer_id)

    def end(self, producer_id: int) -> None:
        """Note that an abort marker of the producer was read."""
        self._aborting.discard(producer_id)

    def __contains__(self, producer_id: object) -> bool:
        """Whether a transactional batch of the producer, at this place, is aborted."""
        return producer_id in self._aborting
