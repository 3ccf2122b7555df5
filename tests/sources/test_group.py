"""A group's logs as Spark's planner asks for them, and as a stream of Spark's."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.job.batch_plan import planned_in
from sources.datasource import LogtwinDataSource, register
from sources.errors import AboveMaximum, ConfigurationError, LogtwinError, SegmentError, find_error
from sources.group import standing
from sources.group.lookout import Lookout
from sources.group.offsets import GroupOffset
from sources.group.standing import ReadingPlace, Standing
from sources.group.stream import GroupOptions, GroupReader, GroupSource
from sources.master import RANGES_SCHEMA, PlanFailed, Planned, PlannedSplit
from sources.offsets import Offset
from sources.options import EARLIEST, parse_options
from tests.patience import PATIENCE_S
from tests.sources.scripted_log import ScriptedLog
from tests.spans import span
from tests.truth import Fixture

A, B, C = "rocketmq/a", "rocketmq/b", "rocketmq/c"
ALL = ReadAllAvailable()


def options_of(logs: list[dict[str, Any]], folder: Path, **more: Any) -> dict[str, str]:
    """As Spark hands them over: text, with keys in lower case."""
    given = {"logs": json.dumps(logs), "standing": folder / "standing", "triggerIntervalS": 0.05, **more}
    return {key.lower(): str(value) for key, value in given.items()}


def say(folder: Path, places: Mapping[str, int], *, budget: int = 10**9) -> None:
    """`places` by the last letter of a log's id."""
    said = {f"rocketmq/{name}": ReadingPlace(Offset(position), 0) for name, position in places.items()}
    standing.write(folder / "standing", Standing(said, budget))


def by_path(fixture: Fixture, log_id: str, **more: Any) -> dict[str, Any]:
    return {"id": log_id, "path": str(fixture.commitlog_path), **more}


def reader_of(given: dict[str, str]) -> GroupReader:
    reader = GroupSource.of(given).stream_reader()
    assert isinstance(reader, GroupReader)
    return reader


def rows(reader: GroupReader, end: GroupOffset) -> list[Planned]:
    """The rows of the batch `end`, as its only task yields them, in one record batch."""
    (partition,) = reader.partitions(GroupOffset(0).to_json(), end.to_json())
    carried = pickle.loads(pickle.dumps(partition))  # noqa: S301 - our own
    (batch,) = reader.read(carried)
    assert batch.schema == RANGES_SCHEMA
    assert [tuple(row.values()) for row in batch.to_pylist()] == [one.as_row() for one in carried.planned]
    return list(carried.planned)


# Offsets


def test_batches_are_numbered_and_an_empty_one_is_the_last_again(fixture_550: Fixture, tmp_path: Path) -> None:
    reader = reader_of(options_of([by_path(fixture_550, A), by_path(fixture_550, B)], tmp_path))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start  # nothing is listed
    say(tmp_path, {"a": 0, "b": 0}, budget=2_000_000)
    for number in (1, 2):  # the positions have not moved
        end = GroupOffset.from_json(reader.latestOffset(start, ALL))
        assert end.number == number
        assert {log_id: batch.start for log_id, batch in end.batches.items()} == {A: 0, B: 0}
        assert all(1_000_000 <= batch.end < 1_300_000 for batch in end.batches.values())  # up to a record's end
        start = end.to_json()
    assert [GroupOffset.from_json(start).batches[log_id].end in _starts(fixture_550) for log_id in (A, B)] == [True] * 2
    say(tmp_path, {"a": fixture_550.max_offset, "b": fixture_550.max_offset})
    assert json.dumps(reader.latestOffset(start, ALL)) == json.dumps(start)


def test_what_cannot_be_looked_at_is_in_the_offset(fixture_550: Fixture, tmp_path: Path) -> None:
    reader = reader_of(options_of([by_path(fixture_550, A)], tmp_path))
    say(tmp_path, {"a": fixture_550.max_offset + 1})
    end = GroupOffset.from_json(reader.latestOffset(reader.initialOffset(), ALL))
    assert isinstance(end.errors[A], AboveMaximum)
    (row,) = rows(reader, end)
    assert isinstance(row, PlanFailed)
    assert (row.log_id, type(row.error), row.error.offset) == (A, AboveMaximum, fixture_550.max_offset + 1)


# What is planned of one


def test_the_splits_of_all_logs_are_rows_of_one_batch(fixture_550: Fixture, tmp_path: Path) -> None:
    logs = [by_path(fixture_550, A, split_bytes=500_000), by_path(fixture_550, B)]
    end = fixture_550.max_offset
    found = rows(reader_of(options_of(logs, tmp_path)), GroupOffset(1, {A: span(0, end), B: span(0, end)}))
    splits = {log_id: [row for row in found if row.log_id == log_id] for log_id in (A, B)}
    assert splits[B] == [PlannedSplit(B, span(0, end), span(0, end))]
    owned = [row.owned for row in splits[A] if isinstance(row, PlannedSplit)]
    assert len(owned) == len(splits[A]) > 3
    assert [owned[0].start, *(one.end for one in owned)] == [*(one.start for one in owned), end]
    assert {one.start for one in owned} <= set(_starts(fixture_550))


def test_a_log_that_cannot_be_planned_is_a_row_beside_the_others(fixture_550: Fixture, tmp_path: Path) -> None:
    """Its files go between the look and the plan."""
    logs = [{"id": A, "path": str(tmp_path / "gone"), "split_bytes": 100_000}, by_path(fixture_550, B)]
    end = fixture_550.max_offset
    failed, split = rows(reader_of(options_of(logs, tmp_path)), GroupOffset(1, {A: span(0, end), B: span(0, end)}))
    assert isinstance(failed, PlanFailed)
    assert failed.log_id == failed.error.log == A
    assert isinstance(failed.error, SegmentError | ConfigurationError)
    assert split == PlannedSplit(B, span(0, end), span(0, end))


def test_a_checkpoint_may_name_a_log_that_is_no_more(fixture_550: Fixture, tmp_path: Path) -> None:
    reader = reader_of(options_of([by_path(fixture_550, A)], tmp_path))
    assert rows(reader, GroupOffset(1, {B: span(0, 5)}, {C: LogtwinError("away")})) == []


def test_the_cores_are_for_the_logs_with_the_most_to_read(tmp_path: Path) -> None:
    logs = {log_id: ScriptedLog(log_id) for log_id in (A, B, C, "dister/d")}
    given = options_of([{"id": log_id, "path": "there"} for log_id in logs], tmp_path, cores=4)
    options = parse_options(GroupOptions, given, where="test")
    reader = GroupReader([Lookout(log.master, EARLIEST) for log in logs.values()], options)
    batches = {A: span(0, 700), B: span(0, 200), C: span(0, 100), "dister/d": span(0, 10**9)}
    found = [row.log_id for row in rows(reader, GroupOffset(1, batches))]
    assert {log_id: found.count(log_id) for log_id in logs} == {A: 3, B: 1, C: 1, "dister/d": 1}


# Options


@pytest.mark.parametrize(
    ("logs", "more", "words"),
    [
        ([{"id": A, "pth": "x"}], {}, ["logs[0]", "pth", "'path'"]),
        ([{"id": A, "path": "x"}, {"id": B}], {}, [B, "not one way"]),
        ([{"id": A, "path": "x"}] * 2, {}, ["each log once"]),
        ([], {}, ["nothing to read", "logs or topics"]),
        (["x"], {}, ["logs", "a JSON list of objects"]),
        ([{"id": "kafka/c/t", "path": "x"}], {}, ["kafka/c/t"]),
        ([{"id": A, "path": "x"}], {"maxBytesPerTrigger": 5}, ["maxbytespertrigger"]),
        ([{"id": A, "path": "x"}], {"triggerIntervalS": 0}, ["trigger_interval_s", "greater than 0"]),
    ],
)
def test_mistakes_are_named(tmp_path: Path, logs: list[Any], more: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RuntimeError) as caught:
        LogtwinDataSource(options_of(logs, tmp_path, **more))
    error = find_error(str(caught.value))
    assert isinstance(error, ConfigurationError)
    for word in words:
        assert word in str(error)


def test_a_group_is_no_batch(fixture_550: Fixture, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a stream"):
        GroupSource.of(options_of([by_path(fixture_550, A)], tmp_path)).batch_reader()


@pytest.mark.parametrize(
    ("interval_s", "attempts", "deadline_s", "last_s"), [(5, 3, 0.5, 60), (0.2, 3, 0.2, 60), (0.01, 29, 0.1, 300)]
)
def test_how_long_masters_may_take(interval_s: float, attempts: int, deadline_s: float, last_s: float) -> None:
    logs = [{"id": A, "path": "x", "connect_attempts": attempts}]
    given = options_of(logs, Path("s"), triggerIntervalS=interval_s)
    pace = parse_options(GroupOptions, given, where="test").pace
    assert (pace.interval_s, pace.look_deadline_s, pace.last_look_deadline_s) == (interval_s, deadline_s, last_s)


def _starts(fixture: Fixture) -> list[int]:
    return [row["physical_offset"] for row in fixture.rows]


@pytest.mark.spark
def test_a_stream_of_what_is_there_ends_by_itself(spark: SparkSession, fixture_550: Fixture, tmp_path: Path) -> None:
    """And what each batch's plan says is what Spark reads of it."""
    register(spark)
    end = fixture_550.max_offset
    logs = [by_path(fixture_550, A), by_path(fixture_550, B), {"id": C, "path": str(tmp_path / "nowhere")}]
    positions = {"a": 0, "b": 0, "c": 0}
    batches: list[list[Planned]] = []

    def process(batch: DataFrame, batch_id: int) -> None:
        assert batch.rdd.getNumPartitions() == 1
        planned = planned_in(batch)
        assert [tuple(row) for row in batch.collect()] == [one.as_row() for one in planned]
        batches.append(planned)
        positions.update({one.log_id[-1]: one.batch.end for one in planned if isinstance(one, PlannedSplit)})
        positions.pop("c", None)
        say(tmp_path, positions, budget=2_000_000)

    say(tmp_path, positions, budget=2_000_000)
    reader = spark.readStream.format("logtwin").options(**options_of(logs, tmp_path))
    writer = reader.load().writeStream.foreachBatch(process).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(int(PATIENCE_S))
    assert positions == {"a": end, "b": end}
    read = [{one.log_id: one.batch for one in batch if isinstance(one, PlannedSplit)} for batch in batches]
    for log_id in (A, B):
        ranges = [each[log_id] for each in read if log_id in each]
        assert [0, *(one.end for one in ranges)] == [*(one.start for one in ranges), end]
        assert len(ranges) > 2
    assert [one.log_id for batch in batches for one in batch if isinstance(one, PlanFailed)] == [C]
    assert json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])["number"] == 1
