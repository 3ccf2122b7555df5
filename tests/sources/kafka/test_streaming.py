"""A topic's readers, asked as Spark asks them, out of scripted answers; tests/peers has Spark and a broker."""

import json
import pickle
import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from sources.errors import AboveMaximum, BelowMinimum, ConfigurationError, LogtwinError, Recreated
from sources.kafka.options import TopicOptions
from sources.kafka.streaming import TopicBatchReader, TopicSplit, TopicStreamReader
from sources.kafka.topic import open_topic
from sources.kafka.topic_offsets import TopicOffsets, spread
from sources.offsets import Offset
from tests.sources.kafka.scripted_cluster import OTHER_ID, TOPIC_ID, Play, ScriptedCluster, metadata, offsets, topic

ALL = ReadAllAvailable()


class Readers:
    """Of topic "t", whose answers are scripted."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def options(self, **given: str) -> TopicOptions:
        return TopicOptions.of({"id": "kafka/c/t", "servers": "h:1", "splitOffsets": "10", **given})

    def stream(self, **given: str) -> TopicStreamReader:
        options = self.options(**given)
        return TopicStreamReader(open_topic(options), options)

    def batch(self, **given: str) -> TopicBatchReader:
        options = self.options(**given)
        return TopicBatchReader(open_topic(options), options)

    def holds(self, *held: tuple[int, int], topic_id: uuid.UUID = TOPIC_ID) -> ScriptedCluster:
        """What the topic holds from now on, of each partition."""
        starts, ends = (offsets(*edge) for edge in zip(*held, strict=True))
        described = metadata(topic(leaders=[(1, 0)] * len(held), topic_id=topic_id))
        return self._play(described, starts, ends)


@pytest.fixture
def readers(play: Play) -> Readers:
    return Readers(play)


def at(*positions: int, topic_id: uuid.UUID = TOPIC_ID) -> dict[str, Any]:
    return {"topic": str(topic_id), "next": {str(number): offset for number, offset in enumerate(positions)}}


def owned(splits: Any) -> list[tuple[int, int, int]]:
    """Of each split its partition, where it begins, and where it ends."""
    assert all(isinstance(split, TopicSplit) for split in splits)
    return [(split.log.number, split.owned.start, split.owned.end) for split in splits]


def error_of(kind: type[LogtwinError], question: Any) -> LogtwinError:
    with pytest.raises(kind) as caught:
        question()
    return caught.value


def test_a_start_is_the_earliest_or_latest_or_where_it_is_told_or_0(readers: Readers) -> None:
    for name, expected in (("earliest", at(3, 0)), ("latest", at(8, 5))):
        cluster = readers.holds((3, 8), (0, 5))
        assert readers.stream(startingOffset=name).initialOffset() == expected
        assert cluster.connections == 1
    readers.holds((3, 8), (0, 5), (0, 4))
    assert readers.stream(startingOffset=json.dumps(at(7, 5))).initialOffset() == at(7, 5, 0)
    readers.holds((3, 8), (0, 5), (0, 4))
    assert owned(readers.batch(startingOffset=json.dumps(at(7, 5))).partitions()) == [(0, 7, 8), (2, 0, 4)]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(ALL, at(100, 100)), (ReadMaxRows(20), at(10, 10)), (ReadMaxBytes(1), at(3, 3)), (ReadMaxRows(1), at(1, 1))],
)
def test_a_batch_is_bounded_as_spark_says_or_else_by_its_option(
    readers: Readers, limit: ReadLimit, expected: dict[str, Any]
) -> None:
    readers.holds((0, 100), (0, 100))
    reader = readers.stream(maxOffsetsPerTrigger="6")
    assert reader.latestOffset(at(0, 0), limit) == expected
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert reader.reportLatestOffset() == at(100, 100)
    readers.holds((0, 100), (0, 100))
    assert readers.stream().latestOffset(at(100, 100), limit) == at(100, 100)
    assert readers.stream().reportLatestOffset() is None


def test_a_partition_that_is_added_is_taken_up_by_the_next_batch_from_its_start(readers: Readers) -> None:
    readers.holds((0, 5), (0, 7))
    reader = readers.stream(startingOffset="latest")
    assert reader.latestOffset(at(5), ALL) == at(5, 7)
    assert owned(reader.partitions(at(5), at(5, 7))) == [(1, 0, 7)]


def test_available_now_ends_where_the_topic_ended_when_it_began(readers: Readers) -> None:
    reader = readers.stream()
    readers.holds((0, 20), (0, 5))
    reader.prepareForTriggerAvailableNow()
    readers.holds((0, 30), (0, 9), (0, 4))
    assert reader.latestOffset(at(0, 5), ReadMaxRows(15)) == at(15, 5)
    readers.holds((0, 30), (0, 9), (0, 4))
    assert reader.latestOffset(at(15, 5), ReadMaxRows(15)) == at(20, 5)
    readers.holds((0, 30), (0, 9), (0, 4))
    assert reader.latestOffset(at(20, 5), ReadMaxRows(15)) == at(20, 5)
    assert reader.reportLatestOffset() == at(30, 9, 4)


def test_a_batch_is_planned_in_pieces_from_two_positions_alone(readers: Readers) -> None:
    splits = readers.stream().partitions(at(0, 5), at(25, 5, 3))
    assert owned(splits) == [(0, 0, 10), (0, 10, 20), (0, 20, 25), (2, 0, 3)]
    assert {split.log.known.identity for split in splits if isinstance(split, TopicSplit)} == {str(TOPIC_ID)}
    assert pickle.loads(pickle.dumps(splits)) == splits  # noqa: S301 - our own


def test_a_batch_read_covers_what_is_held_when_it_is_planned(readers: Readers) -> None:
    readers.holds((3, 15), (0, 2))
    assert owned(readers.batch().partitions()) == [(0, 3, 13), (0, 13, 15), (1, 0, 2)]
    readers.holds((3, 15), (0, 2))
    assert owned(readers.batch(startingOffset="latest").partitions()) == [(0, 15, 15)]


@pytest.mark.parametrize(
    ("start", "kind", "log", "words"),
    [
        (at(4, 5, topic_id=OTHER_ID), Recreated, "kafka/c/t", [str(TOPIC_ID), str(OTHER_ID)]),
        (at(1, 5), BelowMinimum, "kafka/c/t/0", ["2 or more"]),
        (at(), BelowMinimum, "kafka/c/t/0", ["2 or more"]),
        (at(4, 12), AboveMaximum, "kafka/c/t/1", ["9 or less"]),
        (at(4, 5, 6), AboveMaximum, "kafka/c/t/2", ["no such log"]),
    ],
)
def test_a_start_that_the_topic_does_not_hold_is_an_error_that_crosses_processes(
    readers: Readers, start: dict[str, Any], kind: type[LogtwinError], log: str | None, words: list[str]
) -> None:
    told = {"startingOffset": json.dumps(start)}
    for ask in (
        lambda: readers.stream().latestOffset(start, ALL),
        lambda: readers.stream(**told).initialOffset(),
        lambda: readers.batch(**told).partitions(),
    ):
        readers.holds((2, 9), (0, 9))
        error = error_of(kind, ask)
        assert error.log == log
        for word in words:
            assert word in str(error)


def test_a_batch_of_nothing_is_one_empty_split_that_asks_nobody(readers: Readers) -> None:
    reader = readers.stream()
    (split,) = reader.partitions(at(5, 5), at(5, 5))
    assert owned([split]) == [(0, 5, 5)]
    assert list(reader.read(split)) == []


# positions in a topic: their one form in a checkpoint, and how far a batch goes


ID = uuid.UUID(int=7)
BACKLOGS = st.dictionaries(st.integers(0, 50), st.integers(0, 10**6), max_size=20)


def positions(*at: int) -> TopicOffsets:
    return TopicOffsets(ID, {number: Offset(offset) for number, offset in enumerate(at)})


def test_positions_have_one_form_whatever_their_order() -> None:
    numbers = list(range(12))
    random.Random(1).shuffle(numbers)
    shuffled = TopicOffsets(ID, {number: Offset(number * 10) for number in numbers})
    assert json.dumps(shuffled.to_json()) == json.dumps(positions(*range(0, 120, 10)).to_json())
    assert json.dumps(positions(5, 0).to_json()) == (
        '{"topic": "00000000-0000-0000-0000-000000000007", "next": {"0": 5, "1": 0}}'
    )
    assert list(shuffled.to_json()["next"])[-3:] == ["9", "10", "11"]


@pytest.mark.parametrize(
    "stored",
    [{"offset": 5}, {"topic": str(ID)}, {"topic": "t", "next": {}}, {"topic": str(ID), "next": [1]},
     {"topic": str(ID), "next": {"0": None}}, {"topic": 5, "next": {}}],
)  # fmt: skip
def test_the_checkpoint_of_another_source_is_named(stored: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="no positions of a Kafka topic"):
        TopicOffsets.from_json(stored)


@given(BACKLOGS, st.integers(1, 10**6))
def test_a_limit_is_spread_over_all_that_wait(backlogs: dict[int, int], most: int) -> None:
    steps = spread(backlogs, most)
    waiting = sum(1 for backlog in backlogs.values() if backlog)
    assert steps.keys() == backlogs.keys()
    for number, backlog in backlogs.items():
        assert min(1, backlog) <= steps[number] <= backlog
    assert min(most, sum(backlogs.values())) - waiting <= sum(steps.values()) <= max(most, waiting)
    if sum(backlogs.values()) <= most:
        assert steps == backlogs


@pytest.mark.parametrize(
    ("backlogs", "most", "expected"),
    [
        ({0: 100, 1: 0, 2: 300}, 40, {0: 10, 1: 0, 2: 29}),  # 1 + 99 of 398 x 38 = 9, 1 + 299 of 398 x 38 = 28
        ({0: 10**9, 1: 1}, 1000, {0: 999, 1: 1}),
    ],
)
def test_a_partition_goes_as_far_as_it_is_behind(backlogs: dict[int, int], most: int, expected: dict[int, int]) -> None:
    assert spread(backlogs, most) == expected


def test_a_batch_goes_on_and_never_back() -> None:
    assert positions(5, 9).advanced(positions(7, 3), None) == positions(7, 9)
    assert positions(5, 9).advanced(positions(5, 9), 100) == positions(5, 9)
    assert positions(0, 0).advanced(positions(10, 10), 2) == positions(1, 1)
