"""Which records of transactions to read (KIP-98), and which batches belong to aborted ones.

With the records of a partition its leader lists the aborted transactions that touch them: the producer, and the offset
of the transaction's first record, which may lie before the requested offset. A producer has one transaction at a time;
those of several producers are interleaved. So, over the batches in log order::

    listed with first_offset <= last offset of the batch  ->  its producer is aborting
    abort marker of a producer                            ->  it is aborting no longer
    transactional batch of an aborting producer           ->  aborted, skipped

The rule and its order are those of the Java consumer (CompletedFetch.nextFetchedRecord).

A marker is the record of a control batch, which has one, or none once compaction has removed it:

====================  =====  ==========================================================
key field             bytes  meaning (Kafka documentation, "Control Batches")
====================  =====  ==========================================================
version               i16    0
type                  i16    0 abort, 1 commit; others do not concern transactions
====================  =====  ==========================================================
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sources.errors import CorruptRecord
from sources.kafka.format.record_format import varint
from sources.offsets import Offset

ABORT: Final = 0
_KEY: Final = struct.Struct(">hh")
_ATTRIBUTES_BYTES: Final = 1


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


def is_abort(records: bytes | memoryview, base_offset: Offset) -> bool:
    """Whether the records of the control batch at `base_offset` mark an aborted transaction.

    Raises CorruptRecord if they are no marker at all.
    """
    if not records:
        return False
    try:
        _version, kind = _KEY.unpack_from(records, _key_at(records))
    except (ValueError, IndexError, struct.error) as error:
        raise CorruptRecord(
            "the control batch has no type",
            offset=base_offset,
            expected=f"a key of {_KEY.size} bytes",
            found=error,
            hint="The CRC of the batch is right: the broker wrote it like this.",
        ) from error
    return bool(kind == ABORT)


def _key_at(records: bytes | memoryview) -> int:
    _length, at = varint(records, 0)
    _timestamp_delta, at = varint(records, at + _ATTRIBUTES_BYTES)
    _offset_delta, at = varint(records, at)
    key_length, at = varint(records, at)
    if key_length < _KEY.size:
        raise ValueError(f"a key of {key_length} bytes")
    return at
