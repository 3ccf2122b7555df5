"""Topics as a cluster knows them: ids, partitions and their leaders, cleanup.policy, and what our user may do.

A topic is identified by its id (KIP-516): deleted and created again, it has the same name but another id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from sources.errors import ConfigurationError, LogtwinError, MasterRefused, NoSuchTopic, Recreated
from sources.kafka.cluster.client_errors import NONE, check_code, sound
from sources.kafka.cluster.connection import Cluster

WITH_IDS: Final = 10
"""The first version of the metadata request whose answer includes topic ids."""

_NO_NODE: Final = -1
_OF_TOPIC: Final = 2
"""The resource type of a topic (ConfigResource.java)."""
_CLEANUP: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_NEEDED: Final = {"READ": 3, "DESCRIBE": 8}
"""The operations that a job needs, of a topic and of a group, with their numbers (AclOperation.java)."""


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
    return [sound(one) for one in topics_found(cluster, names).values()]


def topics_found(cluster: Cluster, names: Iterable[str]) -> dict[str, Topic | LogtwinError]:
    """Like `topics_named`, by name, with the error of each topic that has one. Raises only as `Cluster.call` does."""
    asked = list(dict.fromkeys(names))
    found = {topic.name: topic for topic in _metadata(cluster, asked)}
    return {name: _existing_or_error(found.get(name), name) for name in asked}


def topic_known(cluster: Cluster, name: str, topic_id: uuid.UUID | None) -> Topic:
    """Return a topic as these connections last heard of it, which must have this id, if one is given.

    `learn_topics` has asked for it. Raises the topic's error, and Recreated.
    """
    topic: Topic = sound(cluster.topics[name])
    if topic_id is not None:
        check_same(topic, topic_id)
    return topic


def learn_topics(cluster: Cluster, wanted: Iterable[tuple[TopicPartition, uuid.UUID | None]]) -> None:
    """Ask, at once, for the topics of which no leader of a wanted partition is known, or another id than is wanted.

    Raises as `Cluster.call` does.
    """
    unknown = {tp.topic for tp, topic_id in wanted if not _is_led(cluster.topics.get(tp.topic), tp, topic_id)}
    if unknown:
        cluster.topics |= topics_found(cluster, sorted(unknown))


def _is_led(found: Topic | LogtwinError | None, tp: TopicPartition, topic_id: uuid.UUID | None) -> bool:
    if not isinstance(found, Topic):
        return False
    return found.leaders.get(tp.partition) is not None and topic_id in (None, found.id)


def check_same(topic: Topic, topic_id: uuid.UUID) -> None:
    """Raise Recreated if `topic` has another id than `topic_id`."""
    if topic.id != topic_id:
        raise Recreated(
            f"topic {topic.name} was deleted and created again: it is another one of the same name",
            expected=f"topic id {topic_id}",
            found=topic.id,
            hint="What was replicated is all that is left of the old one, and stays as it is. Replicate the new one "
            "under another name of the cluster.",
        )


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


def _existing_or_error(found: Any, name: str) -> Topic | LogtwinError:
    try:
        return _existing(found, name)
    except LogtwinError as error:
        return error


def _existing(found: Any, name: str) -> Topic:
    if found is None or found.error_code == kafka_errors.UnknownTopicOrPartitionError.errno:
        raise NoSuchTopic(
            f"there is no topic {name!r}",
            hint="Check its name. Was it deleted, or is this another cluster? Then check the servers.",
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


def is_compacted(cluster: Cluster, topic: str) -> bool:
    """Whether newer records of a key replace older ones, perhaps besides deletion by age or size.

    Raises ConfigurationError (not allowed), MasterRefused, ProtocolViolation, and as `Cluster.call` does.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = resource(resource_type=_OF_TOPIC, resource_name=topic, configuration_keys=[_CLEANUP])
    (found,) = cluster.call(DescribeConfigsRequest(resources=[asked])).results
    check_code(found.error_code, f"for the {_CLEANUP} of topic {topic}")
    values = (one.value or "" for one in found.configs if one.name == _CLEANUP)
    return any(_COMPACT in value.split(",") for value in values)


def check_topic_rights(cluster: Cluster, topic: str) -> None:
    """Raise ConfigurationError if our user may not read `topic`, and as `Cluster.call` does."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=WITH_IDS,
    )
    (found,) = cluster.call(request).topics
    check_rights(found.error_code, found.authorized_operations, f"topic {topic}")


def check_rights(code: int, allowed: Set[int] | None, what: str) -> None:
    """Raise ConfigurationError if a broker's answer says that our user lacks rights on `what` (KIP-430)."""
    if code != NONE or allowed is None:
        return  # other requests meet the error; a broker that does not tell is believed when it refuses
    missing = [name for name, operation in _NEEDED.items() if operation not in allowed]
    if missing:
        raise ConfigurationError(
            f"our user lacks rights on {what}",
            expected=" and ".join(_NEEDED),
            found=f"no {' and no '.join(missing)}",
            hint=f"kafka-acls.sh --add --allow-principal User:… --operation {missing[0]} grants it.",
        )
