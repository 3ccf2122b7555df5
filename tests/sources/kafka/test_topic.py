"""A topic asked through a script: its history by few questions, and whether its group may be used."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from sources.errors import AboveMaximum, BelowMinimum, ConfigurationError, LogtwinError, MasterUnreachable, Rewritten
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.isolation import Isolation
from sources.kafka.session import GroupSession
from sources.kafka.topic import KafkaTopic
from sources.master import Committed, Known
from sources.offsets import LogId, Offset
from sources.shards import Shard
from sources.silent_session import SilentSession
from tests.sources.kafka.group_answers import ALICE, committed, coordinator, described
from tests.sources.kafka.scripted_cluster import (
    TOPIC_ID,
    Play,
    ScriptedCluster,
    epoch_ends_of,
    metadata,
    offsets,
    topic,
)

P0 = LogId("kafka", "c/t/0")
TWO = metadata(topic(leaders=[(1, 4), (1, 4)]))


def a_topic(**options: Any) -> KafkaTopic:
    return KafkaTopic(settings=KafkaSettings(servers=("h:1",)), cluster="c", topic="t", **{"patience_ms": 0} | options)


def at(*positions: tuple[int, int | None]) -> dict[LogId, Known]:
    return {
        LogId("kafka", f"c/t/{number}"): Known(str(TOPIC_ID), Offset(offset), epoch)
        for number, (offset, epoch) in enumerate(positions)
    }


def names(cluster: ScriptedCluster) -> list[str]:
    return [type(request).__name__ for request, _ in cluster.asked]


def test_the_history_of_all_partitions_is_checked_by_one_question_to_their_leader(play: Play) -> None:
    cluster = play(TWO, offsets(0, 5), offsets(100, 50), epoch_ends_of({0: (3, 90), 1: (4, 50)}))
    a_topic().check_history(at((90, 3), (50, 4)))
    assert cluster.is_done
    assert cluster.connections == 1
    assert names(cluster) == [
        "MetadataRequest", "ListOffsetsRequest", "ListOffsetsRequest", "OffsetForLeaderEpochRequest"
    ]  # fmt: skip
    assert {request.isolation_level for request, _ in cluster.asked[1:3]} == {Isolation.READ_UNCOMMITTED.value}


def test_a_position_without_an_epoch_is_checked_by_what_is_held_alone(play: Play) -> None:
    cluster = play(TWO, offsets(0), offsets(100))
    a_topic().check_history(at((100, None)))
    assert [one.partition_index for one in cluster.asked[1][0].topics[0].partitions] == [0]
    assert cluster.is_done


@pytest.mark.parametrize(
    ("positions", "ends", "kind", "log"),
    [
        (at((90, 3), (4, 4)), {}, BelowMinimum, "kafka/c/t/1"),
        (at((90, 3), (51, 4)), {}, AboveMaximum, "kafka/c/t/1"),
        (at((90, 3), (50, 4), (1, 1)), {}, AboveMaximum, "kafka/c/t/2"),
        (at((90, 3), (50, 4)), {0: (3, 90), 1: (4, 49)}, Rewritten, "kafka/c/t/1"),
        (at((90, 3), (50, 4)), {0: (2, 90), 1: (4, 50)}, Rewritten, "kafka/c/t/0"),
    ],
)
def test_what_is_no_longer_the_history_names_the_partition_s_log(
    play: Play, positions: dict[LogId, Known], ends: dict[int, tuple[int, int]], kind: type[LogtwinError], log: str
) -> None:
    play(TWO, offsets(0, 5), offsets(100, 50), epoch_ends_of(ends))
    with pytest.raises(kind) as raised:
        a_topic().check_history(positions)
    assert type(raised.value) is kind
    assert raised.value.log == log


def test_of_a_share_no_other_partitions_are_asked_for(play: Play) -> None:
    six = metadata(topic(leaders=[(1, 4)] * 6))
    of_each = {1: [2, 4], 2: [0, 1, 3, 5]}
    for number, ours in of_each.items():
        cluster = play(six, offsets(*[0] * 6), offsets(*[9] * 6))
        held = a_topic(shard=Shard(number, 2)).held({})
        assert [log_id.name for log_id in held] == [f"c/t/{at}" for at in ours]
        asked = [[one.partition_index for one in request.topics[0].partitions] for request, _ in cluster.asked[1:]]
        assert asked == [ours, ours]
    play(metadata(topic(leaders=[(1, 4)])))
    assert a_topic(shard=Shard(1, 2)).held({}) == {}


def test_what_breaks_is_asked_again_from_the_start(play: Play) -> None:
    cluster = play(TWO, MasterUnreachable("gone"), TWO, offsets(0), offsets(100), epoch_ends_of({0: (3, 90)}))
    a_topic(patience_ms=60_000).check_history(at((90, 3)))
    assert (cluster.connections, cluster.is_done) == (2, True)
    play(MasterUnreachable("gone"))
    with pytest.raises(MasterUnreachable) as raised:
        a_topic().check_history(at((90, 3)))
    assert raised.value.log == "kafka/c/t"


def test_a_group_that_others_consume_with_is_refused_naming_the_topic_and_them(play: Play) -> None:
    play(coordinator(), described("Stable", (ALICE,)))
    with pytest.raises(ConfigurationError, match="alice-1") as raised:
        a_topic(group="g").check()
    assert raised.value.log == "kafka/c/t"
    free = play(MasterUnreachable("gone"), coordinator(), described("Empty"))
    a_topic(group="g", patience_ms=60_000).check()
    assert free.is_done


def test_without_a_group_nobody_is_asked_and_nothing_acknowledged(play: Play) -> None:
    cluster = play()
    a_topic().check()
    session = a_topic().open_session()
    assert isinstance(session, SilentSession)
    session.acknowledge({P0: Committed(Offset(90), 3)})
    session.close()
    assert (session.acknowledged, session.state.acknowledged, session.failure) == ({}, None, None)
    with closing(a_topic(group="g").open_session()) as session:
        assert isinstance(session, GroupSession)
    assert cluster.connections == 0


def test_what_the_group_has_committed_is_asked_of_its_coordinator(play: Play) -> None:
    cluster = play(TWO, coordinator(), committed(p0=7, p1=-1))
    assert a_topic(group="g").acknowledged_by_master() == {P0: 7}
    assert names(cluster) == ["MetadataRequest", "FindCoordinatorRequest", "OffsetFetchRequest"]
    assert [one.partition_indexes for one in cluster.asked[-1][0].topics] == [[0, 1]]
    assert (cluster.connections, cluster.is_done) == (1, True)
    nobody = play()
    assert a_topic().acknowledged_by_master() == {}
    assert nobody.connections == 0


@pytest.mark.parametrize(
    ("patience_s", "connect_ms", "request_ms", "patience_ms"),
    [(2.0, 2000, 2000, 2000), (0.1, 1000, 1000, 1000), (8.0, 5000, 8000, 8000), (600.0, 5000, 20_000, 30_000)],
)
def test_in_a_hurry_waits_are_shorter_and_nothing_is_tried_twice(
    patience_s: float, connect_ms: int, request_ms: int, patience_ms: int
) -> None:
    """But a second is always left: a leader may wait half a second itself for something to send."""
    patient = a_topic(patience_ms=30_000, group="g", split_offsets=7)
    assert (patient.settings.connect_timeout_ms, patient.settings.request_timeout_ms) == (5000, 20_000)
    hurried = patient.hurried(patience_s)
    settings = hurried.settings
    assert (settings.connect_timeout_ms, settings.request_timeout_ms, settings.connect_attempts) == (
        connect_ms, request_ms, 1,
    )  # fmt: skip
    assert hurried == replace(patient, settings=settings, patience_ms=patience_ms)
