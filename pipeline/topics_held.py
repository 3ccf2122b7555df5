"""Which Kafka topics a replica has, and where each of their partitions stands: what table ``kafka_log`` says.

Here nobody is asked but the table, so that the verbs that read a replica need no broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pipeline.config import Config
from sinks.kafka.position import TopicTable
from sinks.kafka.state import PartitionState, TopicState
from sinks.kernel import KernelTable
from sinks.owned import DOMAIN
from sinks.tables import KAFKA_LOG
from sinks.warehouse import absolute
from sources.kafka.options import ReplicatedTopicOptions
from sources.master_topic import partition_log
from sources.offsets import LogId


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """One topic. `state` is None before a job has claimed it."""

    options: ReplicatedTopicOptions
    state: TopicState | None

    @property
    def log_id(self) -> LogId:
        return LogId.parse(self.options.id)

    def partitions(self) -> Iterator[tuple[LogId, PartitionState]]:
        """The log of each partition that has a position, in order."""
        for number, one in sorted(() if self.state is None else self.state.partitions.items()):
            yield partition_log(self.log_id, number), one


def held_topics(spark: SparkSession, config: Config) -> list[HeldTopic]:
    """The topics of a configuration; where a pattern names them, those that the replica has. Raises ReplicaError."""
    if not config.topics:
        return []
    return [held_topic(spark, config, options) for options in config.topics_among(topics_in(spark, config.warehouse))]


def held_topic(spark: SparkSession, config: Config, options: ReplicatedTopicOptions) -> HeldTopic:
    """Raises ReplicaError where the table contradicts itself."""
    return HeldTopic(options, topic_state(spark, config.warehouse, LogId.parse(options.id)))


def topic_state(spark: SparkSession, warehouse: str, topic: LogId) -> TopicState | None:
    """What the table says of `topic`; None where there is no table, or nothing of it. Raises as `held_topic` does."""
    path = KAFKA_LOG.path(absolute(warehouse))
    return None if KernelTable(spark, path).snapshot() is None else TopicTable(spark, path, topic).read().state


def topics_in(spark: SparkSession, warehouse: str) -> list[LogId]:
    """Every topic that a job has ever claimed in `warehouse`, by name."""
    snapshot = KernelTable(spark, KAFKA_LOG.path(absolute(warehouse))).snapshot()
    names = () if snapshot is None else snapshot.domains()
    return sorted(LogId.parse(name.removeprefix(DOMAIN)) for name in names if name.startswith(f"{DOMAIN}kafka/"))
