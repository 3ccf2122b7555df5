from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Planned, agrees
from sources.offsets import Offset

RECORD = 100  # the largest record, in bytes


def planned(end: int, previous: int | None, done: bool) -> Planned:
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
    checkpoint: Planned | None, position: int | None, expected: bool
) -> None:
    assert agrees(checkpoint, None if position is None else Offset(position), RECORD, Offset(0)) is expected


@pytest.mark.parametrize(("minimum", "expected"), [(0, True), (300, True), (301, False), (400, False)])
def test_a_checkpoint_that_leads_below_the_masters_minimum_leads_nowhere(minimum: int, expected: bool) -> None:
    """Also where the master still holds what comes next, or the rest was passed."""
    assert agrees(planned(500, 300, False), Offset(400), RECORD, Offset(minimum)) is expected


def write(folder: Path, ends: list[int], done: list[int]) -> Checkpoint:
    """A checkpoint as Spark lays it out."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    for batch, end in enumerate(ends):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"offset": end})]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
        (folder / "offsets" / f".{batch}.crc").write_text("")
    for batch in done:
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    return Checkpoint(str(folder))


def test_what_a_checkpoint_plans_is_read_from_spark_s_files(tmp_path: Path) -> None:
    assert Checkpoint(str(tmp_path / "none")).planned() is None
    assert write(tmp_path / "a", [10], []).planned() == planned(10, None, False)
    assert write(tmp_path / "b", list(range(10, 130, 10)), list(range(11))).planned() == planned(120, 110, False)
    assert write(tmp_path / "c", [10, 20], [0, 1]).planned() == planned(20, 10, True)


def test_a_checkpoint_moved_aside_is_kept(tmp_path: Path) -> None:
    checkpoint = write(tmp_path / "log", [10], [0])
    aside = checkpoint.move_aside(datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
    assert not (tmp_path / "log").exists()
    assert (Path(aside) / "offsets" / "0").exists()
    assert checkpoint.planned() is None
