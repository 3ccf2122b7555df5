"""A topic's readers, asked as Spark asks them, out of scripted answers; tests/peers has Spark and a broker."""

from __future__ import annotations

import json
import pickle
import uuid
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from sources.errors import AboveMaximum, BelowMinimum, LogtwinError, Recreated
from sources.kafka.options import TopicOptions
from sources.kafka.streaming import TopicBatchReader, TopicSplit, TopicStreamReader
from sources.kafka.topic import open_topic
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


def test_a_stream_starts_at_the_earliest_or_the_latest_offsets(readers: Readers) -> None:
    for name, expected in (("earliest", at(3, 0)), ("latest", at(8, 5))):
        cluster = readers.holds((3, 8), (0, 5))
        assert readers.stream(startingOffset=name).initialOffset() == expected
        assert cluster.connections == 1


def test_a_start_is_where_it_is_told_or_0(readers: Readers) -> None:
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


def test_nothing_new_is_the_same_text(readers: Readers) -> None:
    readers.holds((0, 100), (0, 100))
    assert readers.stream().latestOffset(at(100, 100), ALL) == at(100, 100)
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
