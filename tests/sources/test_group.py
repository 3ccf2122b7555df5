"""A group's logs as Spark's planner asks for them, and as a stream of Spark's."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.job.stream import offset_in
from sources.datasource import LogtwinDataSource, register
from sources.errors import BelowMinimum, ConfigurationError, LogtwinError, MasterUnreachable, SegmentError, find_error
from sources.group import standing
from sources.group.masters import MastersFile
from sources.group.offsets import GroupOffset, planned, shares
from sources.group.planner import GroupPlanner
from sources.group.standing import ListedLog, Standing
from sources.group.stream import GroupOptions, group_source
from sources.master import PlanFailed, PlannedSplit
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import parse_options
from sources.rocketmq.log import RocketMQLog
from tests.patience import PATIENCE_S
from tests.sources.scripted_log import ScriptedLog, planning
from tests.spans import span
from tests.truth import Fixture

A, B, C = "rocketmq/a", "rocketmq/b", "rocketmq/c"
ALL = ReadAllAvailable()


def options_of(logs: list[dict[str, Any]], folder: Path, **more: Any) -> dict[str, str]:
    """As Spark hands them over: text, with keys in lower case."""
    (folder / "masters").write_text(json.dumps(logs))
    files = {name: folder / name for name in ("masters", "standing")}
    given = {**files, "triggerIntervalS": 0.05, **more}
    return {key.lower(): str(value) for key, value in given.items()}


def say(folder: Path, places: Mapping[str, int], *, budget: int = 10**9) -> None:
    """`places` by the last letter of a log's id."""
    said = {f"rocketmq/{name}": ListedLog(Offset(position), 0) for name, position in places.items()}
    standing.write(folder / "standing", Standing(said, budget))


def by_path(fixture: Fixture, log_id: str, **more: Any) -> dict[str, Any]:
    return {"id": log_id, "path": str(fixture.commitlog_path), **more}


# Offsets


def test_batches_are_numbered_and_an_empty_one_is_the_last_again(fixture_550: Fixture, tmp_path: Path) -> None:
    logs = [by_path(fixture_550, A), by_path(fixture_550, B)]
    with planning(options_of(logs, tmp_path, pollDeadlineS=PATIENCE_S)) as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start  # nothing is listed
        say(tmp_path, {"a": 0, "b": 0}, budget=2_000_000)
        for number in (1, 2):  # the positions have not moved
            end = GroupOffset.from_json(reader.latestOffset(start, ALL))
            assert end.number == number
            assert {log_id: batch.start for log_id, batch in end.batches.items()} == {A: 0, B: 0}
            assert all(1_000_000 <= batch.end < 1_300_000 for batch in end.batches.values())  # up to a record's end
            start = end.to_json()
        starts = {row["physical_offset"] for row in fixture_550.rows}
        assert {GroupOffset.from_json(start).batches[log_id].end for log_id in (A, B)} <= starts
        say(tmp_path, {"a": fixture_550.max_offset, "b": fixture_550.max_offset})
        assert json.dumps(reader.latestOffset(start, ALL)) == json.dumps(start)


def test_the_first_batch_is_waited_for_longer(
    fixture_550: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs one in any case."""
    waits_s: list[float] = []
    monkeypatch.setattr(GroupPlanner, "next", lambda _, within_s: waits_s.append(within_s))
    for interval_s in (0.1, 5.0, 60.0):
        with planning(options_of([by_path(fixture_550, A)], tmp_path, triggerIntervalS=interval_s)) as reader:
            for number in (0, 1):
                reader.latestOffset(GroupOffset(number).to_json(), ALL)
    assert waits_s == [1.0, 0.1, 10.0, 5.0, 60.0, 60.0]


def test_a_master_that_comes_is_read_beside_the_others(fixture_550: Fixture, tmp_path: Path) -> None:
    """The job adds it to the file, and then lists its log."""
    logs = [by_path(fixture_550, A), by_path(fixture_550, B)]
    with planning(options_of(logs[:1], tmp_path, pollDeadlineS=PATIENCE_S)) as reader:
        say(tmp_path, {"a": 0, "b": 0})  # b is of no master, so nobody reads it
        end = GroupOffset.from_json(reader.latestOffset(reader.initialOffset(), ALL))
        assert set(end.batches) == {A}
        options_of(logs, tmp_path)
        say(tmp_path, {"a": fixture_550.max_offset, "b": 7})
        end = GroupOffset.from_json(reader.latestOffset(end.to_json(), ALL))
        assert (list(end.errors), list(end.batches)) == ([], [B])


# Options


@pytest.mark.parametrize(
    ("logs", "more", "words"),
    [
        ([{"id": A, "pth": "x"}], {}, ["masters[0]", "pth", "'path'"]),
        ([{"id": A, "path": "x"}, {"id": B}], {}, [B, "not one way"]),
        ([{"id": A, "path": "x"}, {"id": "kafka/c/t"}], {}, ["masters[1]", "servers"]),
        ([], {}, ["nothing to read", "a master"]),
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
        group_source(options_of([by_path(fixture_550, A)], tmp_path)).batch_reader()


@pytest.mark.parametrize(
    ("interval_s", "attempts", "deadline_s", "last_s"), [(5, 3, 0.5, 60), (0.2, 3, 0.2, 60), (0.01, 29, 0.1, 300)]
)
def test_how_long_masters_may_take(
    tmp_path: Path, interval_s: float, attempts: int, deadline_s: float, last_s: float
) -> None:
    logs = [{"id": A, "path": "x", "connect_attempts": attempts}]
    given = options_of(logs, tmp_path, triggerIntervalS=interval_s)
    pace = parse_options(GroupOptions, given, where="test", camel=True).pace(MastersFile(tmp_path / "masters").added())
    assert (pace.interval_s, pace.poll_deadline_s, pace.last_poll_deadline_s) == (interval_s, deadline_s, last_s)


@pytest.mark.spark
def test_a_stream_of_what_is_there_ends_by_itself(spark: SparkSession, fixture_550: Fixture, tmp_path: Path) -> None:
    """And each batch finds in the query's offset log what it reads. Spark reads nothing of it."""
    register(spark)
    end = fixture_550.max_offset
    logs = [by_path(fixture_550, A), by_path(fixture_550, B), {"id": C, "path": str(tmp_path / "nowhere")}]
    positions = {"a": 0, "b": 0, "c": 0}
    batches: list[GroupOffset] = []

    def process(batch: DataFrame, batch_id: int) -> None:
        read = GroupOffset.from_json(offset_in(tmp_path / "checkpoint", batch_id))
        batches.append(read)
        assert batch.collect() == []
        positions.update({log_id[-1]: int(one.end) for log_id, one in read.batches.items()})
        positions.pop("c", None)
        say(tmp_path, positions, budget=2_000_000)

    say(tmp_path, positions, budget=2_000_000)
    reader = spark.readStream.format("logtwin").options(**options_of(logs, tmp_path))
    writer = reader.load().writeStream.foreachBatch(process).trigger(availableNow=True)
    query = writer.option("checkpointLocation", (tmp_path / "checkpoint").as_uri()).start()
    assert query.awaitTermination(int(PATIENCE_S))
    assert positions == {"a": end, "b": end}
    for log_id in (A, B):
        ranges = [one.batches[log_id] for one in batches if log_id in one.batches]
        assert [0, *(one.end for one in ranges)] == [*(one.start for one in ranges), end]
        assert len(ranges) > 2
    assert [list(one.errors) for one in batches if one.errors] == [[C]]
    assert [one.number for one in batches] == list(range(1, len(batches) + 1))


# offsets of a group: what a batch reads, of which log how much; and what the job says of the places


ONE = OffsetRange(Offset(5), Offset(9))
TWO = OffsetRange(Offset(0), Offset(2**62))
GONE = BelowMinimum("gone", log="rocketmq/c", offset=5, hint="Two\nlines.")
AWAY = MasterUnreachable("away", log="rocketmq/d")
THERE = GroupOffset(7, {"rocketmq/a": ONE, "rocketmq/b": TWO}, {"rocketmq/c": GONE, "rocketmq/d": AWAY})


def text(offset: GroupOffset) -> str:
    return json.dumps(offset.to_json())


def test_an_offset_comes_back_from_its_text() -> None:
    back = GroupOffset.from_json(json.loads(text(THERE)))
    assert (back.number, back.batches) == (7, THERE.batches)
    assert {log: type(error) for log, error in back.errors.items()} == {
        "rocketmq/c": BelowMinimum,
        "rocketmq/d": MasterUnreachable,
    }
    assert [error.facts() for error in back.errors.values()] == [GONE.facts(), AWAY.facts()]


def test_an_offset_has_one_text_and_a_line() -> None:
    turned = GroupOffset(7, {"rocketmq/b": TWO, "rocketmq/a": ONE}, {"rocketmq/d": AWAY, "rocketmq/c": GONE})
    assert text(THERE) == text(turned) == text(GroupOffset.from_json(json.loads(text(THERE))))
    assert "\n" not in text(THERE)
    assert text(THERE) != text(replace(THERE, number=8))
    assert GroupOffset(0).to_json() == {"number": 0, "batches": {}, "errors": {}}
    with pytest.raises(ConfigurationError, match="another source"):
        GroupOffset.from_json({"offset": 5})


def test_a_log_that_cannot_be_planned_is_an_error_beside_the_others(fixture_550: Fixture, tmp_path: Path) -> None:
    """Its files go between the look and the plan."""
    paths = {A: tmp_path / "gone", B: fixture_550.commitlog_path}
    logs = {log_id: RocketMQLog(log_id=LogId.parse(log_id), path=str(path)) for log_id, path in paths.items()}
    end = fixture_550.max_offset
    failed, split = planned(GroupOffset(1, {A: span(0, end), B: span(0, end)}), logs, cores=1)
    assert isinstance(failed, PlanFailed)
    assert failed.log_id == failed.error.log == A
    assert isinstance(failed.error, SegmentError | ConfigurationError)
    assert split == PlannedSplit(B, span(0, end), span(0, end))


def test_logs_that_left_and_errors_are_not_planned() -> None:
    offset = GroupOffset(1, {B: span(0, 5), C: span(0, 5)}, {A: LogtwinError("away", log=A)})
    logs = {log_id: ScriptedLog(log_id).master for log_id in (A, B)}
    assert planned(offset, logs, cores=1) == [PlannedSplit(B, span(0, 5), span(0, 5))]


def test_the_cores_are_for_the_logs_with_the_most_to_read() -> None:
    batches = {A: span(0, 700), B: span(0, 200), C: span(0, 100), "dister/d": span(0, 10**9)}
    logs = {log_id: ScriptedLog(log_id).master for log_id in batches}
    found = [one.log_id for one in planned(GroupOffset(1, batches), logs, cores=4)]
    assert {log_id: found.count(log_id) for log_id in logs} == {A: 3, B: 1, C: 1, "dister/d": 1}


BACKLOGS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.integers(0, 2**40), max_size=40)


@given(backlogs=BACKLOGS, budget_bytes=st.integers(1, 100) | st.integers(1, 2**42))
def test_a_batch_is_full_and_each_log_with_news_has_a_fair_share(backlogs: dict[str, int], budget_bytes: int) -> None:
    found = shares(backlogs, budget_bytes)
    assert sum(found.values()) == max(min(budget_bytes, sum(backlogs.values())), len(found))
    assert set(found) == {log for log, size in backlogs.items() if size}
    assert all(1 <= share <= backlogs[log] for log, share in found.items())
    largest = max(found.values(), default=0)
    assert all(share >= largest - 1 for log, share in found.items() if share < backlogs[log])


PLACES = Standing({"rocketmq/a": ListedLog(Offset(5), 2), "rocketmq/b": ListedLog(None)}, budget_bytes=1000)
STOPPING = Standing({}, budget_bytes=1000, is_stopping=True)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "standing"
    for said in (PLACES, STOPPING, PLACES):
        standing.write(path, said)
        first = (file := standing.file_at(path)).read()
        assert first == said
        standing.write(path, said)
        assert file.read() is first
    with path.open() as held:  # by who reads it just then: it stays whole
        standing.write(path, STOPPING)
        assert held.read() != path.read_text()
    assert list(tmp_path.iterdir()) == [path]
    path.write_text("[")
    with pytest.raises(ValueError, match="Expecting"):
        standing.file_at(path).read()
