"""Bounds out of scripted answers: which leaders are asked what, and answers that are none."""

import uuid
from typing import Any

import kafka.errors as kafka_errors
import pyarrow as pa
import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from sources.errors import (
    AboveMaximum,
    ConfigurationError,
    LogtwinError,
    MasterRefused,
    MasterUnreachable,
    NoSuchTopic,
    ProtocolViolation,
    Recreated,
    Rewritten,
)
from sources.kafka.cluster.leaders import bounds, bounds_of, epoch_ends
from sources.kafka.cluster.settings import Isolation, KafkaSettings
from sources.kafka.cluster.topics import (
    Leader,
    Topic,
    TopicPartition,
    is_compacted,
    learn_topics,
    topic_known,
    topics_matching,
    topics_named,
)
from sources.kafka.epochs import EpochEnd, check_history
from sources.kafka.metadata import held_back
from sources.kafka.topic import KafkaTopic
from sources.metadata import KAFKA_PARTITIONS, FetchedMetadata
from sources.offsets import LogId, Offset
from tests.sources.kafka import scripted_cluster as scripted
from tests.sources.kafka.group_answers import committed, coordinator
from tests.sources.kafka.scripted_cluster import (
    NOT_LEADER,
    OTHER_ID,
    TOPIC_ID,
    Play,
    ScriptedCluster,
    metadata,
    offsets,
    topic,
)
from tests.spans import span

LED_BY_TWO = Topic("t", TOPIC_ID, {0: Leader(1, 3), 1: Leader(1, 4), 2: None})


def test_a_leader_is_asked_for_all_its_partitions_at_once_with_its_epochs() -> None:
    cluster = ScriptedCluster(offsets(0, 5), offsets(10, 5))
    found = bounds(cluster, LED_BY_TWO, Isolation.READ_COMMITTED, [0, 1])
    assert found == {0: span(0, 10), 1: span(5, 5)}
    assert [node for _, node in cluster.asked] == [1, 1]
    for request, _ in cluster.asked:
        asked = request.topics[0].partitions
        assert [(one.partition_index, one.current_leader_epoch) for one in asked] == [(0, 3), (1, 4)]
    assert [request.topics[0].partitions[0].timestamp for request, _ in cluster.asked] == [-2, -1]


@pytest.mark.parametrize(("partition", "expected"), [(2, MasterRefused), (3, ConfigurationError)])
def test_a_partition_that_cannot_be_asked_for(partition: int, expected: type[LogtwinError]) -> None:
    with pytest.raises(expected, match=f"t/{partition}"):
        bounds(ScriptedCluster(), LED_BY_TWO, Isolation.READ_COMMITTED, [partition])


def test_an_end_below_the_start_is_no_range() -> None:
    with pytest.raises(MasterRefused, match="expected 7 or more, found 6"):
        bounds(ScriptedCluster(offsets(7), offsets(6)), LED_BY_TWO, Isolation.READ_COMMITTED, [0])


def test_each_leader_is_asked_once_for_the_ends_of_all_its_epochs() -> None:
    topic = Topic("t", TOPIC_ID, {0: Leader(2, 7), 1: Leader(1, 3), 2: Leader(2, 8), 3: None})
    ends = {0: (5, 50), 1: (3, 30), 2: (-1, -1)}
    cluster = ScriptedCluster(scripted.epoch_ends_of({1: ends[1]}), scripted.epoch_ends_of({2: ends[2], 0: ends[0]}))
    found = epoch_ends(cluster, topic, {0: 5, 1: 4, 2: 6})
    assert found == {number: EpochEnd(epoch, Offset(end)) for number, (epoch, end) in ends.items()}
    asked = [(node, one) for request, node in cluster.asked for one in request.topics[0].partitions]
    assert sorted((node, one.partition, one.leader_epoch, one.current_leader_epoch) for node, one in asked) == [
        (1, 1, 4, 3), (2, 0, 5, 7), (2, 2, 6, 8)
    ]  # fmt: skip
    assert len(cluster.asked) == 2
    assert epoch_ends(ScriptedCluster(), topic, {}) == {}
    with pytest.raises(MasterRefused, match="no broker leads partition t/3"):
        epoch_ends(ScriptedCluster(), topic, {3: 1})


def test_an_epoch_that_the_leader_does_not_tell_names_its_partition() -> None:
    answer = scripted.epoch_ends_of({0: (5, 50), 1: (-1, -1)})
    answer.topics[0].partitions[1].error_code = scripted.NOT_LEADER
    topic = Topic("t", TOPIC_ID, {0: Leader(1, 7), 1: Leader(1, 3)})
    found = epoch_ends(ScriptedCluster(answer), topic, {0: 5, 1: 4})
    assert found[0] == EpochEnd(5, Offset(50))
    assert isinstance(found[1], MasterRefused)
    assert "where epoch 4 of t/1 ended" in str(found[1])


def test_the_error_of_one_partition_is_a_value_and_the_others_have_their_bounds() -> None:
    """Whichever of the two requests is refused for it."""
    starts, ends = offsets(0, 5, 7, 1), offsets(10, 9, 8)
    starts.topics[0].partitions[0].error_code = ends.topics[0].partitions[2].error_code = scripted.NOT_LEADER
    for number, one in enumerate(ends.topics[0].partitions, start=1):
        one.partition_index = number
    cluster = ScriptedCluster(starts, ends)
    leading = {TopicPartition("t", number): 3 for number in range(4)}
    refused, held, other, refused_later = bounds_of(cluster, 1, leading, Isolation.READ_COMMITTED).values()
    assert isinstance(refused, MasterRefused)
    assert isinstance(refused_later, MasterRefused)
    assert held == span(5, 10)
    assert other == span(7, 9)
    assert [len(request.topics[0].partitions) for request, _ in cluster.asked] == [4, 3]


# histories


LOG = LogId("kafka", "c/orders/0")


def check_log(epoch: int | None, position: int, found: tuple[int, int], start: int, end: int) -> None:
    bounds = span(start, end)
    check_history(epoch, Offset(position), EpochEnd(found[0], Offset(found[1])), bounds, LOG)


@pytest.mark.parametrize(
    ("epoch", "position", "found", "end"),
    [
        (5, 100, (5, 100), 100),  # read to the end, same leader
        (5, 100, (5, 300), 300),  # the leader went on
        (5, 100, (5, 100), 200),  # another leader went on exactly there
        (5, 100, (5, 150), 200),  # the old one still wrote some more
        (0, 0, (0, 0), 0),
        (None, 100, (-1, -1), 100),  # no epoch is known: the end alone tells
    ],
)
def test_a_log_that_only_grew(epoch: int | None, position: int, found: tuple[int, int], end: int) -> None:
    check_log(epoch, position, found, 0, end)


@pytest.mark.parametrize("found", [(5, 80), (4, 80), (-1, -1), (5, 100)])
@pytest.mark.parametrize("epoch", [5, None])
def test_a_log_that_ends_below_the_position(epoch: int | None, found: tuple[int, int]) -> None:
    with pytest.raises(AboveMaximum, match=r"kafka/c/orders/0 at offset 100: .* found 80") as raised:
        check_log(epoch, 100, found, 10, 80)
    assert raised.value.offset == 100
    assert raised.value.hint


@pytest.mark.parametrize(
    ("found", "same_up_to", "named"),
    [
        ((5, 99), 99, "epoch 5 up to 99"),  # cut below the position, and grown again under another leader
        ((4, 60), 10, "epoch 4 up to 60"),  # the epoch was cut away as a whole: who knows where it began
        ((4, 150), 10, "epoch 4 up to 150"),  # the same, and the older leader's records reach beyond
        ((-1, -1), 10, "no such epoch"),  # the leader has never heard of any up to it
    ],
)
def test_a_log_that_has_another_history_below_the_position(found: tuple[int, int], same_up_to: int, named: str) -> None:
    with pytest.raises(Rewritten, match="expected leader epoch 5 up to 100 or more") as raised:
        check_log(5, 100, found, 10, 200)
    assert (raised.value.log, raised.value.offset, raised.value.found) == (str(LOG), same_up_to, named)


# a topic's partitions as rows; errors are results


UNKNOWN_TOPIC: int = kafka_errors.UnknownTopicOrPartitionError.errno


def asked(
    play: Play, *answers: Any, group: str | None = None, patience_ms: int = 0
) -> tuple[FetchedMetadata, ScriptedCluster]:
    """What is fetched of topic "t" where the cluster gives these answers, and which questions it was asked."""
    cluster = play(*answers)
    settings = KafkaSettings(servers=("h:1",))
    (found,) = KafkaTopic(settings=settings, cluster="c", topic="t", group=group, patience_ms=patience_ms).metadata()
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


def test_offsets_behind_the_last_stable_one_are_held_back_and_the_log_says_so(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    leaders = metadata(topic(leaders=[(1, 3), (1, 4), (-1, 5)]))
    with caplog.at_level("INFO"):
        found, _ = asked(play, leaders, offsets(2, 0), offsets(8, 1), offsets(5, 0), offsets(8, 5))
    assert caplog.messages == ["kafka/c/t/1: 4 offsets wait for an open transaction to end"]
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


# topics out of scripted metadata: their leaders, by name and by pattern, and those that cannot be read


UNKNOWN: int = kafka_errors.UnknownTopicOrPartitionError.errno


def test_topics_come_in_the_order_they_were_named_in_with_all_their_partitions() -> None:
    cluster = ScriptedCluster(metadata(topic("a", [(1, 0), (2, 5), (-1, 7)]), topic("b")))
    b, a = topics_named(cluster, ["b", "a", "b"])
    assert a == Topic("a", TOPIC_ID, {0: Leader(1, 0), 1: Leader(2, 5), 2: None})
    assert (b.name, b.leader(0)) == ("b", Leader(1, 0))
    ((request, _),) = cluster.asked
    assert [one.name for one in request.topics] == ["b", "a"]
    assert not request.allow_auto_topic_creation


@pytest.mark.parametrize(
    ("code", "expected", "said"),
    [
        (UNKNOWN, NoSuchTopic, "there is no topic 'a'"),
        (kafka_errors.InvalidTopicError.errno, ConfigurationError, "not the name of a topic"),
        (kafka_errors.TopicAuthorizationFailedError.errno, ConfigurationError, "not allowed to ask where topic a lies"),
        (kafka_errors.LeaderNotAvailableError.errno, MasterRefused, "where topic a lies.*LEADER_NOT_AVAILABLE"),
        (kafka_errors.MessageSizeTooLargeError.errno, ProtocolViolation, r"error 10"),
    ],
)
def test_topics_that_cannot_be_read(code: int, expected: type[LogtwinError], said: str) -> None:
    with pytest.raises(expected, match=said) as raised:
        topics_named(ScriptedCluster(metadata(topic("a", error=code))), ["a"])
    assert type(raised.value) is expected


def test_topics_are_listed_by_name_and_no_internal_one() -> None:
    known = metadata(
        topic("shop.b"), topic("shop.a"), topic("workshop.a"), topic("shop"), topic("shop.x", is_internal=True),
        topic("shop.gone", error=UNKNOWN),
    )  # fmt: skip
    cluster = ScriptedCluster(known, known)
    assert [found.name for found in topics_matching(cluster, lambda name: name.startswith("shop."))] == [
        "shop.a",
        "shop.b",
    ]
    assert topics_matching(cluster, lambda _: False) == []
    assert cluster.asked[0][0].topics is None


def test_only_topics_that_are_not_known_to_lead_what_is_wanted_are_asked_for() -> None:
    """A cached leader may have moved, and then refuses; but an id, or a partition, that is new is looked up at once."""
    a, b = topic("a", [(1, 0), (-1, 7)]), topic("b", topic_id=OTHER_ID)
    cluster = ScriptedCluster(metadata(a, b, topic("c", error=UNKNOWN)), *[metadata(a)] * 2, metadata(topic("c")))

    def asked(name: str, partition: int, topic_id: uuid.UUID | None = None) -> list[str]:
        before = len(cluster.asked)
        learn_topics(cluster, [(TopicPartition(name, partition), topic_id), (TopicPartition("b", 0), OTHER_ID)])
        return [one.name for request, _ in cluster.asked[before:] for one in request.topics]

    learn_topics(cluster, [(TopicPartition(name, 0), None) for name in "abca"])
    assert [one.name for one in cluster.asked[0][0].topics] == ["a", "b", "c"]
    assert asked("a", 0, TOPIC_ID) == []
    assert asked("a", 1) == ["a"]  # it had no leader
    assert asked("a", 0, OTHER_ID) == ["a"]
    assert topic_known(cluster, "b", OTHER_ID).leader(0) == Leader(1, 0)
    with pytest.raises(Recreated):
        topic_known(cluster, "b", TOPIC_ID)
    with pytest.raises(ConfigurationError, match="there is no topic 'c'"):
        topic_known(cluster, "c", None)
    assert asked("c", 0) == ["c"]
    assert topic_known(cluster, "c", None).id == TOPIC_ID


def cleanup_answer(policy: str | None, error: int = 0) -> Any:
    of_topic = DescribeConfigsResponse.DescribeConfigsResult
    config = of_topic.DescribeConfigsResourceResult(name="cleanup.policy", value=policy)
    configs = [] if error else [config]
    return DescribeConfigsResponse(results=[of_topic(error_code=error, configs=configs)], version=4)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact", "delete", "", None])
def test_the_policy_says_it(policy: str | None) -> None:
    cluster = ScriptedCluster(cleanup_answer(policy))
    assert is_compacted(cluster, "orders") is (policy not in ("delete", "", None))
    ((request, node_id),) = cluster.asked
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (2, "orders")
    assert (list(resource.configuration_keys), node_id) == (["cleanup.policy"], None)


def test_who_may_not_ask_is_told_what_to_grant() -> None:
    cluster = ScriptedCluster(cleanup_answer(None, kafka_errors.TopicAuthorizationFailedError.errno))
    with pytest.raises(ConfigurationError, match=r"cleanup\.policy of topic orders") as caught:
        is_compacted(cluster, "orders")
    assert "DESCRIBE_CONFIGS" in (caught.value.hint or "")
