"""A topic of a cluster: what it holds now, and its partitions as logs. Picklable; connects in each call."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sources.errors import naming
from sources.kafka.bounds import bounds
from sources.kafka.connection import connected
from sources.kafka.isolation import Isolation
from sources.kafka.leadership import check_same
from sources.kafka.options import TopicOptions
from sources.kafka.partition import MIB, KafkaPartition
from sources.kafka.retries import ask_again
from sources.kafka.settings import KafkaSettings
from sources.kafka.topic_offsets import TopicBounds
from sources.kafka.topics import topics_named
from sources.offsets import LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic:
    """Topic `topic` of the cluster that the operator calls `cluster`. The limits are as `KafkaPartition` has them."""

    settings: KafkaSettings
    cluster: str
    topic: str
    isolation: Isolation = Isolation.READ_COMMITTED
    chunk_bytes: int = 8 * MIB
    split_offsets: int = 100_000
    patience_ms: int = 30_000

    @property
    def log_id(self) -> LogId:
        """Of the topic; a log id of a partition ends with its number."""
        return LogId("kafka", f"{self.cluster}/{self.topic}")

    def bounds(self, known: uuid.UUID | None = None) -> TopicBounds:
        """The topic's id, its partitions, and what can be read of each now, by one connection.

        `known` is the id of the topic that is meant. Raises Recreated where another one has the name by now,
        ConfigurationError (no such topic, not allowed), MasterUnreachable, MasterSilent, MasterRefused,
        ProtocolViolation; what a retry can help only after `patience_ms`.
        """
        with naming(self.log_id):
            return ask_again(lambda: self._bounds(known), patience_ms=self.patience_ms)

    def partition(self, number: int, topic_id: uuid.UUID) -> KafkaPartition:
        """Partition `number` of the topic that `topic_id` names."""
        return KafkaPartition(
            settings=self.settings,
            cluster=self.cluster,
            topic=self.topic,
            topic_id=topic_id,
            partition=number,
            isolation=self.isolation,
            chunk_bytes=self.chunk_bytes,
            split_offsets=self.split_offsets,
            patience_ms=self.patience_ms,
        )

    def _bounds(self, known: uuid.UUID | None) -> TopicBounds:
        with connected(self.settings) as cluster:
            topic = topics_named(cluster, [self.topic])[0]
            if known is not None:
                check_same(topic, known)
            return TopicBounds(topic.id, bounds(cluster, topic, self.isolation))


def open_topic(options: TopicOptions) -> KafkaTopic:
    """The topic that `options` describe. Raises ConfigurationError; connects to nothing."""
    return KafkaTopic(
        settings=options.settings(),
        cluster=options.cluster,
        topic=options.topic,
        isolation=options.isolation_level,
        chunk_bytes=options.chunk_bytes,
        split_offsets=options.split_offsets,
    )
