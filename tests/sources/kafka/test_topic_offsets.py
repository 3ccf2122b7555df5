"""Positions in a topic: their one form in a checkpoint, and how far a batch goes."""

from __future__ import annotations

import json
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import ConfigurationError
from sources.kafka.topic_offsets import TopicOffsets, spread
from sources.offsets import Offset

ID = uuid.UUID(int=7)
BACKLOGS = st.dictionaries(st.integers(0, 50), st.integers(0, 10**6), max_size=20)


def positions(*at: int) -> TopicOffsets:
    """In the partitions 0, 1, …"""
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
        ({0: 5, 1: 5, 2: 5}, 1, {0: 1, 1: 1, 2: 1}),
        ({0: 5, 1: 5}, 10, {0: 5, 1: 5}),
        ({}, 10, {}),
    ],
)
def test_a_partition_goes_as_far_as_it_is_behind(backlogs: dict[int, int], most: int, expected: dict[int, int]) -> None:
    assert spread(backlogs, most) == expected


def test_a_batch_goes_on_and_never_back() -> None:
    assert positions(5, 9).advanced(positions(7, 3), None) == positions(7, 9)
    assert positions(5, 9).advanced(positions(5, 9), 100) == positions(5, 9)
    assert positions(0, 0).advanced(positions(10, 10), 2) == positions(1, 1)
