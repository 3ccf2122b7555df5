"""A topic's partitions as rows, out of scripted answers; errors are results."""

from __future__ import annotations

from typing import Any

import kafka.errors as kafka_errors
import pyarrow as pa
import pytest

from sources.errors import ConfigurationError, LogtwinError, MasterUnreachable
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.isolation import Isolation
from sources.kafka.metadata import fetched, held_back
from sources.kafka.topic import KafkaTopic
from sources.metadata import KAFKA_PARTITIONS, FetchedMetadata
from tests.sources.kafka.group_answers import committed, coordinator
from tests.sources.kafka.scripted_cluster import NOT_LEADER, TOPIC_ID, Play, ScriptedCluster, metadata, offsets, topic

UNKNOWN_TOPIC: int = kafka_errors.UnknownTopicOrPartitionError.errno


def asked(
    play: Play, *answers: Any, group: str | None = None, patience_ms: int = 0
) -> tuple[FetchedMetadata, ScriptedCluster]:
    """What is fetched of topic "t" where the cluster gives these answers, and which questions it was asked."""
    cluster = play(*answers)
    settings = KafkaSettings(servers=("h:1",))
    (found,) = fetched(KafkaTopic(settings=settings, cluster="c", topic="t", group=group, patience_ms=patience_ms))
    assert found.kind is KAFKA_PARTITIONS
    assert cluster.is_done
    return found, cluster


def rows(found: FetchedMetadata) -> list[tuple[Any, ...]]:
    assert found.items is not None
    assert not isinstance(found.items, LogtwinError)
    assert found.items.schema == KAFKA_PARTITIONS.schema
    names = [name for name in found.items.column_names if name != "topic_id"]
    assert set(found.items.column("topic_id").to_pylist()) == {str(TOPIC_ID)}
    return [tuple(row[name] for name in names) for row in found.items.to_pylist()]


def test_each_partition_has_its_leader_its_bounds_and_what_the_group_has_committed(play: Play) -> None:
    leaders = metadata(topic(leaders=[(1, 3), (1, 4)]))
    bounds = (offsets(2, 0), offsets(8, 0), offsets(5, 0), offsets(9, 1))  # stable ones first
    found, cluster = asked(play, leaders, *bounds, coordinator(), committed(p0=7, p1=-1), group="lakehouse")
    assert rows(found) == [(0, 1, 3, 2, 8, 9, "lakehouse", 7), (1, 1, 4, 0, 0, 1, "lakehouse", None)]
    levels = [request.isolation_level for request, _ in cluster.asked[1:5]]
    assert levels == [Isolation.READ_COMMITTED.value] * 2 + [Isolation.READ_UNCOMMITTED.value] * 2


def test_a_partition_without_a_leader_has_no_bounds(play: Play) -> None:
    leaders = metadata(topic(leaders=[(1, 3), (-1, 4)]))
    found, _ = asked(play, leaders, offsets(0), offsets(5), offsets(0), offsets(5))
    assert rows(found) == [(0, 1, 3, 0, 5, 5, None, None), (1, None, None, None, None, None, None, None)]
    found, _ = asked(play, metadata(topic(leaders=[(-1, 4)])))
    assert rows(found) == [(0, None, None, None, None, None, None, None)]


def test_offsets_behind_the_last_stable_one_are_held_back(play: Play) -> None:
    leaders = metadata(topic(leaders=[(1, 3), (1, 4), (-1, 5)]))
    found, _ = asked(play, leaders, offsets(2, 0), offsets(8, 1), offsets(5, 0), offsets(8, 5))
    assert isinstance(found.items, pa.Table)
    assert held_back(found.items, Isolation.READ_COMMITTED) == {1: 4}
    assert held_back(found.items, Isolation.READ_UNCOMMITTED) == {}


def test_a_leader_that_has_moved_is_sought_again(play: Play) -> None:
    before, after = metadata(topic(leaders=[(1, 3)])), metadata(topic(leaders=[(2, 4)]))
    answers = (before, offsets(0, error=NOT_LEADER), after, offsets(0), offsets(5), offsets(0), offsets(6))
    found, cluster = asked(play, *answers, patience_ms=60_000)
    assert rows(found) == [(0, 2, 4, 0, 5, 6, None, None)]
    assert cluster.connections == 2


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([metadata(topic(error=UNKNOWN_TOPIC))], ConfigurationError),
        ([MasterUnreachable("nobody is there")], MasterUnreachable),
        ([metadata(topic()), offsets(0), offsets(5), offsets(0), MasterUnreachable("it broke")], MasterUnreachable),
    ],
    ids=["no such topic", "no broker", "in between"],
)
def test_what_goes_wrong_is_the_result_and_names_the_topic(
    play: Play, answers: list[Any], expected: type[LogtwinError]
) -> None:
    found, _ = asked(play, *answers)
    assert isinstance(found.items, expected)
    assert "kafka/c/t" in str(found.items)
