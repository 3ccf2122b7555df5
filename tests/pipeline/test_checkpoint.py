from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.checkpoint import TORN, Checkpoint, Planned, agrees_in_topic
from sources.kafka.topic_offsets import TopicBounds, TopicOffsets
from sources.offsets import Offset, OffsetRange

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
        (TORN, False),
    ],
)
def test_a_topic_s_checkpoint_agrees_in_every_partition(checkpoint: Planned | None, expected: bool) -> None:
    assert agrees_in_topic(checkpoint, at(40, 50), HELD) is expected


def write(folder: Path, ends: list[TopicOffsets], done: list[int]) -> None:
    """A checkpoint as Spark lays it out."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    for batch, end in enumerate(ends):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(end.to_json())]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
        (folder / "offsets" / f".{batch}.crc").write_text("")
    for batch in done:
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    (folder / "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000001"}')


def test_what_a_checkpoint_plans_is_read_from_spark_s_files(tmp_path: Path) -> None:
    write(tmp_path / "a", [at(1, 2)], [])
    write(tmp_path / "b", [at(number, 2) for number in range(12)], list(range(11)))
    write(tmp_path / "c", [at(1, 2), at(3, 4)], [0, 1])
    assert Checkpoint(str(tmp_path / "none")).planned() is None
    assert Checkpoint(str(tmp_path / "a")).planned() == Planned(at(1, 2), None, False)
    assert Checkpoint(str(tmp_path / "b")).planned() == Planned(at(11, 2), at(10, 2), False)
    assert Checkpoint(str(tmp_path / "c")).planned() == Planned(at(3, 4), at(1, 2), True)


@pytest.mark.parametrize(
    ("file", "left"),
    [
        ("offsets/1", b""),
        ("offsets/1", b"v1"),
        ("offsets/1", b'v1\n{"batchWatermarkMs": 0}'),
        ("offsets/1", b'v1\n{"batchWatermarkMs": 0}\n{"topic": "00000000-00'),
        ("offsets/1", bytes(64)),
        ("offsets/1", b"v1\n\xff"),
        ("offsets/0", b""),
        ("commits/1", b""),
        ("metadata", b""),
    ],
)
def test_a_checkpoint_that_a_power_failure_has_torn_leads_nowhere(tmp_path: Path, file: str, left: bytes) -> None:
    write(tmp_path, [at(1, 2), at(3, 4)], [0, 1])
    (tmp_path / file).write_bytes(left)
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.planned() == TORN
    assert not agrees_in_topic(checkpoint.planned(), at(3, 4), HELD)


@pytest.mark.parametrize("uri", ["{}/marks", "file:{}/marks", "file://{}/marks", "file://localhost{}/marks"])
def test_a_checkpoint_moved_aside_is_kept_wherever_it_is(tmp_path: Path, uri: str) -> None:
    write(tmp_path / "marks", [at(1, 2)], [0])
    checkpoint = Checkpoint(uri.format(tmp_path))
    aside = checkpoint.move_aside(datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
    assert not (tmp_path / "marks").exists()
    assert (Path(aside) / "offsets" / "0").exists()
    assert checkpoint.planned() is None
