"""A session with a group's coordinator that is away, taken or slow when a test wants it; tests/peers has real ones."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse
from kafka.protocol.metadata import FindCoordinatorRequest

from sources.errors import ConfigurationError, MasterRefused, MasterUnreachable
from sources.kafka import session as session_module
from sources.kafka.cluster.connection import Cluster
from sources.kafka.cluster.group import ConsumerGroup, DescribedGroup, Member, check_unused
from sources.kafka.cluster.group import described as describe
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.cluster.topics import TopicPartition
from sources.kafka.session import GroupSession
from sources.master import Committed
from sources.offsets import LogId, Offset, partition_log
from tests.patience import PATIENCE_S, wait_until
from tests.sources.kafka.group_answers import (
    ALICE,
    LOADING,
    NOT_FOUND,
    UNKNOWN_MEMBER,
    coordinator,
    described,
    described_newer,
    listed,
)
from tests.sources.kafka.scripted_cluster import ScriptedCluster

SETTINGS = KafkaSettings(servers=("h:1",))
TOPIC = LogId("kafka", "c/t")
P0 = partition_log(TOPIC, 0)
AWAY = MasterUnreachable("nobody there")


class Coordinator(Cluster):
    """Of group "g". `told` are the commits that it took: each partition's offset and epoch."""

    def __init__(self) -> None:
        self.members: tuple[Member, ...] = ()
        self.trouble: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.asked: list[str] = []
        self.told: list[dict[int, tuple[int, int]]] = []

    @contextmanager
    def connected(self, _settings: object) -> Iterator[Cluster]:
        self.asked.append("connect")
        if self.trouble:
            raise self.trouble
        yield self

    def call(self, request: Any, node_id: int | None = None) -> Any:
        self.answers.wait(PATIENCE_S)
        if self.trouble:
            raise self.trouble
        if isinstance(request, FindCoordinatorRequest):
            return coordinator()
        self.asked.append(type(request).__name__)
        if isinstance(request, DescribeGroupsRequest):
            return described("Stable" if self.members else "Empty", self.members)
        assert isinstance(request, OffsetCommitRequest)
        return self._take(request.topics[0])

    def _take(self, topic: Any) -> Any:
        assert topic.name == "t"
        if not self.members:
            asked = topic.partitions
            self.told.append({one.partition_index: (one.committed_offset, one.committed_leader_epoch) for one in asked})
        of_topic = OffsetCommitResponse.OffsetCommitResponseTopic
        error = UNKNOWN_MEMBER if self.members else 0
        found = [of_topic.OffsetCommitResponsePartition(one.partition_index, error) for one in topic.partitions]
        return OffsetCommitResponse(topics=[of_topic(name="t", partitions=found)], version=9)

    @property
    def attempts(self) -> int:
        return self.asked.count("connect")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    group = Coordinator()
    monkeypatch.setattr(session_module, "connected", group.connected)
    return group


@contextmanager
def a_session(**options: float) -> Iterator[GroupSession]:
    session = GroupSession(SETTINGS, "g", "t", TOPIC, **{"longest_wait_s": 0.05, **options})
    try:
        yield session
    finally:
        session.close()


def at(**positions: int) -> dict[LogId, Committed]:
    """at(p0=5): partition 0 at offset 5, of leader epoch 1."""
    return {partition_log(TOPIC, int(name[1:])): Committed(Offset(offset), 1) for name, offset in positions.items()}


def wait_for(session: GroupSession, **acknowledged: int) -> None:
    expected = {partition_log(TOPIC, int(name[1:])): offset for name, offset in acknowledged.items()}
    wait_until(lambda: session.acknowledged == expected, lambda: f"{expected}: {session.acknowledged} {session.state}")


def test_only_changed_positions_are_told_even_if_lower(group: Coordinator) -> None:
    with a_session() as session:
        for positions, expected in (
            ({"p0": 5, "p1": 6}, {"p0": 5, "p1": 6}),
            ({"p1": 8}, {"p0": 5, "p1": 8}),
            ({"p0": 5, "p1": 2}, {"p0": 5, "p1": 2}),
        ):
            session.acknowledge(at(**positions))
            wait_for(session, **expected)
        assert group.told == [{0: (5, 1), 1: (6, 1)}, {1: (8, 1)}, {1: (2, 1)}]
        assert session.state.acknowledged == 7


@pytest.mark.parametrize(
    "trouble", [AWAY, KeyError("nobody thought of it"), MemoryError("nobody thought of it")], ids=repr
)
def test_the_newest_position_gets_through_when_brokers_are_back_or_what_else_failed_has_ended(
    group: Coordinator, trouble: Exception
) -> None:
    group.trouble = trouble
    with a_session() as session:
        for offset in range(1000):
            session.acknowledge(at(p0=offset))
        wait_until(lambda: group.attempts > 3, "attempts")
        assert "nobody th" in str(session.state.last_error)
        assert (session.acknowledged, session.state.connected_since) == ({}, None)
        session.acknowledge({P0: Committed(Offset(999), None)})
        group.trouble = None
        wait_for(session, p0=999)
        assert group.told == [{0: (999, -1)}]
        assert (session.state.reconnects, session.state.last_error) == (0, None)

        session.acknowledge(at(p1=4))
        wait_for(session, p0=999, p1=4)
        group.trouble = trouble
        session.acknowledge(at(p0=1001))
        wait_until(lambda: session.state.connected_since is None, "the loss of the connection")
        group.asked.clear()
        group.trouble = None
        wait_for(session, p0=1001, p1=4)
        assert group.told[-1] == {0: (1001, 1), 1: (4, 1)}  # all of it, for who knows what the other got
        assert group.asked[-3:] == ["connect", "DescribeGroupsRequest", "OffsetCommitRequest"]
        assert session.state.reconnects == 1
        assert session.failure is None


@pytest.mark.parametrize("is_first", [True, False])
def test_a_member_of_the_group_ends_the_session_and_is_named(group: Coordinator, is_first: bool) -> None:
    with a_session() as session:
        if not is_first:
            session.acknowledge(at(p0=1))
            wait_for(session, p0=1)
        told = list(group.told)
        group.members = (ALICE,)
        session.acknowledge(at(p0=5))
        wait_until(lambda: session.failure is not None, "a failure")
        failure = session.failure
        assert isinstance(failure, ConfigurationError)
        assert failure.log == "kafka/c/t"
        assert "alice-1" in str(failure)
        asked = len(group.asked)
        session.acknowledge(at(p0=6))
        session.close()
        assert (len(group.asked), group.told) == (asked, told)
        assert session.acknowledged == ({} if is_first else {P0: 1})
        assert "alice-1" in str(session.state.last_error)


def test_positions_are_repeated_and_who_joined_is_noticed(group: Coordinator) -> None:
    """Kafka would forget them after 7 days; nothing new was written meanwhile."""
    with a_session(repeat_after_s=0.01) as session:
        session.acknowledge(at(p0=5, p1=6))
        wait_until(lambda: len(group.told) > 3, "repetitions")
        assert all(one == {0: (5, 1), 1: (6, 1)} for one in group.told)
        group.members = (ALICE,)
        wait_until(lambda: session.failure is not None, "a failure")


def test_the_end_tells_the_last_position_once(group: Coordinator) -> None:
    session = GroupSession(SETTINGS, "g", "t", TOPIC)
    session.acknowledge(at(p0=5))
    session.close()
    session.close()
    assert group.told == [{0: (5, 1)}]
    assert session.acknowledged == {P0: 5}
    with pytest.raises(ValueError, match=r"kafka/c/t.*closed"):
        session.acknowledge(at(p0=6))


def test_the_end_tries_once_where_the_brokers_are_away(group: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_FIRST_WAIT_S", PATIENCE_S)
    group.trouble = AWAY
    session = GroupSession(SETTINGS, "g", "t", TOPIC)
    session.acknowledge(at(p0=5))
    wait_until(lambda: "nobody there" in str(session.state.last_error), "an attempt")
    group.trouble = None
    session.close()
    assert group.told == [{0: (5, 1)}]

    group.trouble = AWAY
    session = GroupSession(SETTINGS, "g", "t", TOPIC)
    session.acknowledge(at(p0=6))
    session.close()
    assert len(group.told) == 1
    assert not is_running()


def test_an_end_that_takes_too_long_is_given_up_and_nothing_comes_later(
    group: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_LAST_ATTEMPT_S", 0.05)
    group.answers.clear()
    session = GroupSession(SETTINGS, "g", "t", TOPIC)
    session.acknowledge(at(p0=5))
    session.close()
    assert is_running()
    group.answers.set()
    wait_until(lambda: not is_running(), "the thread's end")
    assert group.told == []


def is_running() -> bool:
    return any(thread.name == f"acknowledge {TOPIC}" for thread in threading.enumerate())


# a group asked and told through a script: the coordinator is followed, and others in the group are named


POSITION = {TopicPartition("t", 0): Committed(Offset(3), None)}


def told(error: int) -> Any:
    of_topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = of_topic.OffsetCommitResponsePartition(partition_index=0, error_code=error)
    return OffsetCommitResponse(topics=[of_topic(name="t", partitions=[partition])], version=9)


def test_the_coordinator_is_asked_and_asked_again_while_it_loads() -> None:
    cluster = ScriptedCluster(
        coordinator(error=LOADING), coordinator(), described(error=LOADING), coordinator(5), described("Empty")
    )
    ConsumerGroup("g", patience_ms=60_000).check(cluster)
    assert [node for _, node in cluster.asked] == [None, None, 4, None, 5]
    with pytest.raises(MasterRefused, match="who coordinates group g"):
        ConsumerGroup("g", patience_ms=0).check(ScriptedCluster(coordinator(error=LOADING)))


def test_a_commit_refused_for_members_who_left_is_repeated() -> None:
    cluster = ScriptedCluster(
        coordinator(), told(UNKNOWN_MEMBER), coordinator(), described("Empty"), coordinator(), told(0)
    )
    ConsumerGroup("g").commit(cluster, POSITION)
    assert cluster.is_done
    ConsumerGroup("g").commit(cluster, {})  # nobody is asked


@pytest.mark.parametrize(
    "group",
    [None, DescribedGroup("Empty", "", ()), DescribedGroup("Empty", "consumer", ()), DescribedGroup("Dead", "", ())],
)
def test_a_group_that_nobody_is_in_can_be_used(group: DescribedGroup | None) -> None:
    check_unused("g", group)


def test_members_are_named_with_client_and_host() -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_unused("g", DescribedGroup("Stable", "consumer", (ALICE, Member("b", "bob", "/10.0.0.8"))))
    assert str(raised.value) == (
        "group g is consumed by others; expected a group without members, found alice-1 (client 'alice' at 10.0.0.7), "
        "b (client 'bob' at 10.0.0.8). Offsets of two would overwrite each other: choose a name of its own, or stop "
        "them."
    )


@pytest.mark.parametrize(
    ("state", "kind", "said"),
    [("PreparingRebalance", "consumer", "a group that is PreparingRebalance"),
     *(("Empty", kind, f"protocol type {kind}") for kind in ("connect", "share", "streams"))],
)  # fmt: skip
def test_a_group_that_is_joined_or_of_another_type_is_refused(state: str, kind: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_unused("g", DescribedGroup(state, kind, ()))


def test_a_group_of_the_classic_protocol_is_described_at_once() -> None:
    cluster = ScriptedCluster(described("Stable", (ALICE,)))
    assert describe(cluster, 4, "g") == DescribedGroup("Stable", "consumer", (ALICE,))
    assert [node for _, node in cluster.asked] == [4]


@pytest.mark.parametrize("not_classic", [described(error=NOT_FOUND), described("Dead")])
def test_a_group_of_the_newer_protocol_is_looked_up_in_the_list(not_classic: object) -> None:
    none_yet = ScriptedCluster(not_classic, listed(("other", "consumer", "Stable")))
    assert describe(none_yet, 4, "g") is None
    empty = ScriptedCluster(not_classic, listed(("g", "consumer", "Empty")))
    assert describe(empty, 4, "g") == DescribedGroup("Empty", "consumer", ())
    shared = ScriptedCluster(not_classic, listed(("g", "share", "Stable")))
    assert describe(shared, 4, "g") == DescribedGroup("Stable", "share", ())
    consumed = ScriptedCluster(not_classic, listed(("g", "consumer", "Stable")), described_newer(ALICE))
    assert describe(consumed, 4, "g") == DescribedGroup("Stable", "consumer", (ALICE,))
