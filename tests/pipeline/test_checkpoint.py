from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Planned, agrees, agrees_in_topic, of_log, of_topic
from sources.kafka.topic_offsets import TopicBounds, TopicOffsets
from sources.offsets import Offset, OffsetRange

RECORD = 100  # the largest record, in bytes


def planned(end: int, previous: int | None, done: bool) -> Planned[Offset]:
    return Planned(Offset(end), None if previous is None else Offset(previous), done)


@pytest.mark.parametrize(
    ("checkpoint", "position", "expected"),
    [
        (None, None, True),
        (None, 500, True),
        # the last batch is done: the table holds just that, or that and the rest of its last record
        (planned(500, 300, True), 500, True),
        (planned(500, 300, True), 599, True),
        (planned(500, 300, True), 600, False),
        (planned(500, 300, True), 499, False),
        # it is not: the table is anywhere in it
        (planned(500, 300, False), 300, True),
        (planned(500, 300, False), 500, True),
        (planned(500, 300, False), 299, False),
        (planned(500, 300, False), 600, False),
        # the first batch of all: where it started is not written down
        (planned(500, None, False), None, False),
        (planned(500, None, False), 500, False),
        (planned(500, None, True), 500, True),
        (planned(500, None, True), None, False),
        (planned(500, 300, False), None, False),
    ],
)
def test_the_checkpoint_agrees_only_with_where_it_would_go_on(
    checkpoint: Planned[Offset] | None, position: int | None, expected: bool
) -> None:
    assert agrees(checkpoint, None if position is None else Offset(position), RECORD, Offset(0)) is expected


@pytest.mark.parametrize(("minimum", "expected"), [(0, True), (300, True), (301, False), (400, False)])
def test_a_checkpoint_that_leads_below_the_masters_minimum_leads_nowhere(minimum: int, expected: bool) -> None:
    """Also where the master still holds what comes next, or the rest was passed."""
    assert agrees(planned(500, 300, False), Offset(400), RECORD, Offset(minimum)) is expected


def write(folder: Path, ends: list[int], done: list[int]) -> Checkpoint[Offset]:
    """A checkpoint as Spark lays it out."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    for batch, end in enumerate(ends):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"offset": end})]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
        (folder / "offsets" / f".{batch}.crc").write_text("")
    for batch in done:
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    return of_log(str(folder))


def test_what_a_checkpoint_plans_is_read_from_spark_s_files(tmp_path: Path) -> None:
    assert of_log(str(tmp_path / "none")).planned() is None
    assert write(tmp_path / "a", [10], []).planned() == planned(10, None, False)
    assert write(tmp_path / "b", list(range(10, 130, 10)), list(range(11))).planned() == planned(120, 110, False)
    assert write(tmp_path / "c", [10, 20], [0, 1]).planned() == planned(20, 10, True)


def test_a_checkpoint_moved_aside_is_kept(tmp_path: Path) -> None:
    checkpoint = write(tmp_path / "log", [10], [0])
    aside = checkpoint.move_aside(datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
    assert not (tmp_path / "log").exists()
    assert (Path(aside) / "offsets" / "0").exists()
    assert checkpoint.planned() is None


TOPIC, ANOTHER = uuid.UUID(int=1), uuid.UUID(int=2)
HELD = TopicBounds(TOPIC, {0: OffsetRange(Offset(0), Offset(90)), 1: OffsetRange(Offset(10), Offset(90))})


def at(*next_offsets: int, topic: uuid.UUID = TOPIC) -> TopicOffsets:
    return TopicOffsets(topic, {number: Offset(offset) for number, offset in enumerate(next_offsets)})


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        (None, True),
        # the last batch is done, and the table holds just that
        (Planned(at(40, 50), at(30, 30), True), True),
        (Planned(at(40, 51), at(30, 30), True), False),
        (Planned(at(39, 50), at(30, 30), True), False),
        # it is not: the table is anywhere in it, in each partition for itself
        (Planned(at(60, 60), at(40, 30), False), True),
        (Planned(at(60, 60), at(41, 30), False), False),
        (Planned(at(60, 49), at(40, 30), False), False),
        # a partition of which the master has deleted what would be read again
        (Planned(at(60, 60), at(40, 9), False), False),
        # one that came later begins at 0
        (Planned(at(60, 60), at(40), False), False),
        (Planned(at(40, 50, 7), at(40, 50), False), True),
        # another topic, and the first batch of all
        (Planned(at(40, 50, topic=ANOTHER), at(40, 50, topic=ANOTHER), True), False),
        (Planned(at(60, 60), None, False), False),
    ],
)
def test_a_topic_s_checkpoint_agrees_in_every_partition(
    checkpoint: Planned[TopicOffsets] | None, expected: bool
) -> None:
    assert agrees_in_topic(checkpoint, at(40, 50), HELD) is expected


def test_a_topic_s_checkpoint_is_read_from_spark_s_files(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    for batch, ends in enumerate([at(1, 2), at(3, 4)]):
        (tmp_path / "offsets" / str(batch)).write_text("v1\n{}\n" + json.dumps(ends.to_json()))
    assert of_topic(str(tmp_path)).planned() == Planned(at(3, 4), at(1, 2), False)
