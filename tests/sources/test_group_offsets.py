"""Offsets of a group: what a batch reads, of which log how much; and what the job says of the places."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import BelowMinimum, ConfigurationError, LogtwinError, MasterUnreachable, SegmentError
from sources.group import standing
from sources.group.offsets import GroupOffset, planned, shares
from sources.group.standing import ListedLog, Standing
from sources.master import PlanFailed, PlannedSplit
from sources.offsets import LogId, Offset, OffsetRange
from sources.rocketmq.log import RocketMQLog
from tests.sources.scripted_log import ScriptedLog
from tests.spans import span
from tests.truth import Fixture

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


A, B, C = "rocketmq/a", "rocketmq/b", "rocketmq/c"


def by_path(log_id: str, path: Path, split_bytes: int = 10**9) -> RocketMQLog:
    return RocketMQLog(log_id=LogId.parse(log_id), path=str(path), split_bytes=split_bytes)


def test_a_log_that_cannot_be_planned_is_an_error_beside_the_others(fixture_550: Fixture, tmp_path: Path) -> None:
    """Its files go between the look and the plan."""
    logs = {A: by_path(A, tmp_path / "gone", 100_000), B: by_path(B, fixture_550.commitlog_path)}
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
