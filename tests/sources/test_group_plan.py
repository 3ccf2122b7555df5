"""The splits of a batch of many logs."""

from __future__ import annotations

from pathlib import Path

from sources.errors import ConfigurationError, LogtwinError, SegmentError
from sources.group.offsets import GroupOffset
from sources.group.plan import planned
from sources.master import PlanFailed, PlannedSplit
from sources.offsets import LogId
from sources.rocketmq.log import RocketMQLog
from tests.sources.scripted_log import ScriptedLog
from tests.spans import span
from tests.truth import Fixture

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


def test_what_kept_a_log_from_being_planned_comes_last_and_logs_that_left_are_left_out() -> None:
    away = LogtwinError("away", log=A)
    offset = GroupOffset(1, {B: span(0, 5), C: span(0, 5)}, {A: away, "rocketmq/d": away})
    logs = {log_id: ScriptedLog(log_id).master for log_id in (A, B)}
    assert planned(offset, logs, cores=1) == [PlannedSplit(B, span(0, 5), span(0, 5)), PlanFailed(A, away)]


def test_the_cores_are_for_the_logs_with_the_most_to_read() -> None:
    batches = {A: span(0, 700), B: span(0, 200), C: span(0, 100), "dister/d": span(0, 10**9)}
    logs = {log_id: ScriptedLog(log_id).master for log_id in batches}
    found = [one.log_id for one in planned(GroupOffset(1, batches), logs, cores=4)]
    assert {log_id: found.count(log_id) for log_id in logs} == {A: 3, B: 1, C: 1, "dister/d": 1}
