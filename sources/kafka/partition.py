"""A topic's partition as a log: its id, how it is cut, and its records by offset, read by `sources.kafka.reader`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from sources.errors import ConfigurationError
from sources.kafka.reader import KafkaReader
from sources.master import Chunk, Damage, Known
from sources.offsets import LogId, OffsetRange, partition_log
from sources.reading import WantedSplit, alone


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartition:
    """Partition `partition` of the topic with id `topic_id`, in the cluster that the operator calls `cluster`.

    `split_offsets` is how many offsets one task reads. Raises ConfigurationError for names that cannot be part of a log
    id.
    """

    reader: KafkaReader
    cluster: str
    topic: str
    topic_id: uuid.UUID
    partition: int
    split_offsets: int = 100_000

    def __post_init__(self) -> None:
        try:
            LogId.parse(str(self.log_id))
        except ValueError as error:
            raise ConfigurationError(
                f"topic {self.topic!r} of cluster {self.cluster!r} cannot be replicated",
                expected="names of letters, digits, '-', '_' and '.', the first of which is no dot",
            ) from error

    @property
    def log_id(self) -> LogId:
        return partition_log(LogId("kafka", f"{self.cluster}/{self.topic}"), self.partition)

    def plan(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        """Cut `wanted` into consecutive pieces that tasks may read side by side."""
        return wanted.in_pieces(self.split_offsets)

    def read(self, owned: OffsetRange, *, after_epoch: int | None = None) -> Iterator[Chunk | Damage]:
        """Yield the records at the offsets `owned`, in order (`KafkaReader.read`).

        `after_epoch` is the leader epoch of what lies before `owned`, if known. Raises what the range ends with.
        """
        known = Known(str(self.topic_id), owned.start, after_epoch)
        return alone(self.reader, WantedSplit(self.log_id, owned, known=known))
