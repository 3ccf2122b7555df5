"""A partition read by itself, by the reader that all partitions of a cluster share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from sources.kafka.reader import KafkaReader
from sources.master import Chunk, Damage, Known
from sources.offsets import LogId, OffsetRange, partition_log
from sources.reading import WantedSplit, alone


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartition:
    """Partition `partition` of the topic with id `topic_id`."""

    reader: KafkaReader
    cluster: str
    topic: str
    topic_id: uuid.UUID
    partition: int

    @property
    def log_id(self) -> LogId:
        return partition_log(LogId("kafka", f"{self.cluster}/{self.topic}"), self.partition)

    def read(self, owned: OffsetRange, *, after_epoch: int | None = None) -> Iterator[Chunk | Damage]:
        """`after_epoch` is the leader epoch of what lies before `owned`. Raises what the range ends with."""
        known = Known(str(self.topic_id), owned.start, after_epoch)
        return alone(self.reader, WantedSplit(self.log_id, owned, known=known))
