"""Topics in a cluster's metadata: their ids, their partitions, and the broker that leads each.

A topic is identified by its id (KIP-516): deleted and created again, it has the same name but another id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.protocol.metadata import MetadataRequest

from sources.errors import ConfigurationError, MasterRefused
from sources.kafka.cluster.codes import NONE, check_code
from sources.kafka.cluster.connection import Cluster

WITH_IDS: Final = 10
"""The first version of the metadata request whose answer includes topic ids."""

_NO_NODE: Final = -1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition, and its epoch. A broker in another epoch refuses to answer."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. Every partition is in `leaders`, with None while no broker leads it."""

    name: str
    id: uuid.UUID
    leaders: Mapping[int, Leader | None]

    def leader(self, partition: int) -> Leader:
        """Return the leader. Raises ConfigurationError without such a partition, MasterRefused without a leader."""
        tp = TopicPartition(self.name, partition)
        if partition not in self.leaders:
            raise ConfigurationError(
                f"there is no partition {tp}", expected=f"one of {len(self.leaders)}, counted from 0", found=partition
            )
        leader = self.leaders[partition]
        if leader is None:
            raise MasterRefused(f"no broker leads partition {tp}", hint="Is the broker that holds it running?")
        return leader


def topics_named(cluster: Cluster, names: Iterable[str]) -> list[Topic]:
    """Return the topics with these names, in their order, as a broker knows them now.

    Raises ConfigurationError for one that does not exist or may not be seen, MasterRefused for one that has no leader
    yet, and as `Cluster.call` does.
    """
    asked = list(dict.fromkeys(names))
    found = {topic.name: topic for topic in _metadata(cluster, asked)}
    return [_existing(found.get(name), name) for name in asked]


def topics_matching(cluster: Cluster, is_wanted: Callable[[str], bool]) -> list[Topic]:
    """Return the topics whose name `is_wanted`, by name; never Kafka's internal ones.

    Includes only those that our user may see. Raises as `Cluster.call`.
    """
    listed = (topic for topic in _metadata(cluster, None) if not topic.is_internal and topic.error_code == NONE)
    return sorted((_topic(topic) for topic in listed if is_wanted(topic.name)), key=lambda topic: topic.name)


def _metadata(cluster: Cluster, names: list[str] | None) -> list[Any]:
    """Return the metadata of the named topics (None: of all). Never creates a topic."""
    topics = names if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, min_version=WITH_IDS)
    return list(cluster.call(request).topics)


def _existing(found: Any, name: str) -> Topic:
    if found is None or found.error_code == kafka_errors.UnknownTopicOrPartitionError.errno:
        raise ConfigurationError(
            f"there is no topic {name!r}", hint="Was it deleted? Or is this another cluster: check the servers."
        )
    if found.error_code == kafka_errors.InvalidTopicError.errno:
        raise ConfigurationError("not the name of a topic", found=repr(name))
    check_code(found.error_code, f"where topic {name} lies")
    return _topic(found)


def _topic(found: Any) -> Topic:
    leaders = {partition.partition_index: _leader(partition) for partition in found.partitions}
    return Topic(found.name, found.topic_id, dict(sorted(leaders.items())))


def _leader(partition: Any) -> Leader | None:
    if partition.leader_id == _NO_NODE:
        return None
    return Leader(partition.leader_id, partition.leader_epoch)
