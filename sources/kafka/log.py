"""A topic's partition as a master log (`sources.master.MasterLog`), read by `sources.kafka.reader`.

Offsets count records, but some have none: compaction removed them, or transactions left them behind. So a range is what
the leader was asked for and has answered. The master's own bytes cannot be rebuilt. What is compared instead are the
canonical bytes of the records (`sources.kafka.format.columns`), which depend on nothing else. A replica knows the
topic's id and the leader epoch before its position (`Known`); the leader itself compares both.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.errors import ConfigurationError
from sources.kafka.format.columns import UNLOCATED_SCHEMA, canonical, canonical_lengths
from sources.kafka.options import RECORD_BYTES
from sources.kafka.reader import KafkaReader
from sources.master import NOTHING_KNOWN, Chunk, Damage, Known, Traits
from sources.offsets import LogId, Offset, OffsetRange, packed, partition_log
from sources.reading import WantedSplit, alone
from sources.sole_log import PlainLog

if TYPE_CHECKING:
    from sources.kafka.topic import KafkaTopic

TRAITS: Final = Traits(
    restored_from=tuple(UNLOCATED_SCHEMA.names),
    measured_by=("key", "value", "headers"),
    has_free_offsets=True,
    cuts_at_records=True,
    cuts_batches=True,
    gains_logs=True,
    compares_history=True,
)
"""Those of topics. Reading may begin at any offset. A compacted topic is a map, too, but of any bytes."""


@packed
@dataclass(frozen=True, slots=True)
class KafkaLog(PlainLog):
    """Partition `number` of `topic`. For `patience_s` see `MasterLog.hurried`."""

    topic: KafkaTopic
    number: int
    known: Known = NOTHING_KNOWN
    patience_s: float | None = None

    @property
    def log_id(self) -> LogId:
        return partition_log(self.topic.id, self.number)

    def check(self, *, is_replica: bool = True) -> None:
        self.topic.check(is_replica=is_replica)

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        held = self.topic.bounds(self._topic_id).held
        if self.number not in held:
            raise ConfigurationError(
                "the topic has no such partition", log=self.log_id, expected=f"one of {len(held)}", found=self.number
            )
        return held[self.number]

    @property
    def address(self) -> str:
        return self.topic.address

    @property
    def traits(self) -> Traits:
        return TRAITS

    def size_bytes(self, wanted: OffsetRange) -> int:
        return wanted.size * RECORD_BYTES

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        return min(offset, maximum)

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        return min(maximum, Offset(start + max(1, max_bytes // RECORD_BYTES)))

    @property
    def split_bytes(self) -> int:
        return self.topic.split_offsets * RECORD_BYTES

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        return wanted.in_pieces(self.topic.split_offsets)

    def identity(self) -> str:
        return str(self._topic_id or self.topic.bounds().topic_id)

    def continuing(self, known: Known) -> KafkaLog:
        return replace(self, known=known)

    def hurried(self, patience_s: float) -> KafkaLog:
        return replace(self, patience_s=patience_s)

    @property
    def reader(self) -> KafkaReader:
        return self.topic.reader(self.patience_s)

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        """Implement the contract; every chunk is of one fetch, and reading may end after any of them."""
        return alone(self.reader, WantedSplit(self, owned))

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        """Yield the canonical bytes of the records in `wanted`."""
        for piece in alone(self.reader, WantedSplit(self.continuing(Known(self.known.identity)), wanted)):
            if isinstance(piece, Damage):
                raise piece.error
            yield piece.raw

    def drops_records(self) -> bool:
        """Whether the topic that has the name now is compacted."""
        return self.topic.is_compacted()

    def restore(self, records: pa.RecordBatch) -> bytes:
        return canonical(records)

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return canonical_lengths(records)

    @property
    def _topic_id(self) -> uuid.UUID | None:
        return None if self.known.identity is None else uuid.UUID(self.known.identity)
