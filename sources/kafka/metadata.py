"""A topic's metadata as rows: the leader and the bounds of each partition, and the offset that the group committed.

All rows of a fetch are of one topic id and one view of its leaders. The order of the requests makes the answers
comparable: the last stable offsets come before the high watermarks, which are never below them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sources.errors import LogtwinError, naming
from sources.kafka.cluster.connection import Cluster, ask_again, connected
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.leaders import bounds
from sources.kafka.cluster.settings import Isolation
from sources.kafka.cluster.topics import Topic, TopicPartition, topics_named
from sources.metadata import KAFKA_PARTITIONS, FetchedMetadata
from sources.offsets import Offset

if TYPE_CHECKING:
    from sources.kafka.topic import KafkaTopic

_Row = dict[str, Any]
_logger = logging.getLogger(__name__)


def fetched(topic: KafkaTopic) -> Iterator[FetchedMetadata]:
    """Yield the only kind that a topic has, its partitions. An error is in the result."""
    yield FetchedMetadata(KAFKA_PARTITIONS, _partitions(topic))


def fetched_and_told(topic: KafkaTopic) -> Iterator[FetchedMetadata]:
    """Yield the same, and log which partitions wait for a transaction."""
    for found in fetched(topic):
        if isinstance(found.items, pa.Table):
            for number, offsets in held_back(found.items, topic.isolation).items():
                _logger.info("%s/%d: %d offsets wait for an open transaction to end", topic.id, number, offsets)
        yield found


def held_back(partitions: pa.Table, isolation: Isolation) -> dict[int, int]:
    """Return how many offsets of each partition wait for an open transaction to end, before they can be read.

    Only partitions that have such are in it, and none if nobody waits for transactions.
    """
    if isolation is not Isolation.READ_COMMITTED:
        return {}
    led = (row for row in partitions.to_pylist() if row["leader"] is not None)
    return {row["partition"]: held for row in led if (held := row["log_end"] - row["last_stable"]) > 0}


def _partitions(topic: KafkaTopic) -> pa.Table | LogtwinError:
    """Ask, again if a leader moves or a coordinator is loading, as long as the topic's patience lasts."""
    try:
        with naming(topic.id):
            return ask_again(lambda: _asked(topic), patience_ms=topic.patience_ms)
    except LogtwinError as error:
        return error


def _asked(topic: KafkaTopic) -> pa.Table:
    with connected(topic.settings) as cluster:
        found = topics_named(cluster, [topic.topic])[0]
        held = _held(cluster, found)
        committed = _committed(cluster, found, topic.group)
    rows = [
        {
            "partition": number,
            "topic_id": str(found.id),
            "consumer_group": topic.group,
            "group_offset": committed.get(number),
            **held.get(number, {}),
        }
        for number in found.leaders
    ]
    return pa.Table.from_pylist(rows, schema=KAFKA_PARTITIONS.schema)


def _held(cluster: Cluster, topic: Topic) -> dict[int, _Row]:
    """Return the bounds of each partition that has a leader; no other can be asked for."""
    leaders = {number: leader for number, leader in topic.leaders.items() if leader is not None}
    stable = bounds(cluster, topic, Isolation.READ_COMMITTED, leaders)
    held = bounds(cluster, topic, Isolation.READ_UNCOMMITTED, leaders)
    return {
        number: {
            "leader": leader.node_id,
            "leader_epoch": leader.epoch,
            "log_start": stable[number].start,
            "last_stable": stable[number].end,
            "log_end": held[number].end,
        }
        for number, leader in leaders.items()
    }


def _committed(cluster: Cluster, topic: Topic, group: str | None) -> Mapping[int, Offset]:
    if group is None:
        return {}
    tps = [TopicPartition(topic.name, number) for number in topic.leaders]
    return {tp.partition: at.offset for tp, at in ConsumerGroup(group).committed(cluster, tps).items()}
