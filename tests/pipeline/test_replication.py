"""The life of what is replicated: from which phase to which, and that an end is an end."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline.job import replication
from pipeline.job.log_replication import LogReplication
from pipeline.monitoring.progress import Phase
from sources.errors import LogtwinError, MasterSilent, ReplicaError
from tests.pipeline.running import job_config

PICTURE = {
    before: {after, other}
    for before, after, other in re.findall(r"^ +(\w+) +──▶ (\w+) \| (\w+)", replication.__doc__ or "", re.MULTILINE)
}
GOES_ON = PICTURE.keys() - {"any"}
"""What leads anywhere has not ended: "any" is one of these."""


def is_way(before: Phase, after: Phase) -> bool:
    return before.value in GOES_ON and after.value in PICTURE[before.value] | PICTURE["any"]


class Replicated(LogReplication):
    """What it does to master and tables is only noted."""

    closed = 0

    def _claim(self) -> None:
        return None

    def _resume(self) -> None:
        self.before_it_runs()

    def _meet(self, error: LogtwinError) -> bool:
        return False

    def _ask_master(self, now_s: float) -> None:
        pass

    def _start_metadata(self) -> None:
        pass

    def _close_session(self) -> None:
        self.closed += 1

    def before_it_runs(self) -> None:
        pass


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicated:
    monkeypatch.setattr("pipeline.job.log_replication.Replica", lambda *_: Nothing())
    config = job_config(tmp_path / "lake", path=str(tmp_path))
    return Replicated(cast(SparkSession, None), config, config.logs[0], available_now=False)


class Nothing:
    state = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: None


def test_the_picture_has_each_phase() -> None:
    assert {"starting", "running", "waiting"} == GOES_ON
    assert GOES_ON.union(*PICTURE.values()) == {phase.value for phase in Phase}


@pytest.mark.parametrize(("before", "after"), list(product(Phase, Phase)), ids=lambda phase: phase.value)
def test_the_ways_are_those_of_the_picture(one: Replicated, before: Phase, after: Phase) -> None:
    one._phase = before
    if is_way(before, after):
        assert one._go_to(after)
        assert one.phase is after
    elif before.value not in GOES_ON:
        assert not one._go_to(after)
        assert one.phase is before
    else:
        with pytest.raises(RuntimeError, match=f"cannot go from {before.value} to {after.value}"):
            one._go_to(after)
        assert one.phase is before


def test_a_stop_during_the_start_closes_the_session(one: Replicated) -> None:
    one.before_it_runs = lambda: one.stop(0.0)  # type: ignore[method-assign]
    one.start()
    assert one.phase is Phase.STOPPED
    assert not one.is_read
    assert one.closed == 2  # the stop closed a session that has begun again since


def test_what_comes_after_an_end_changes_nothing(one: Replicated) -> None:
    one.start()
    one.fail(ReplicaError("the first"), for_good=True)
    one.fail(MasterSilent("the second"), for_good=False)
    one.stop(0.0)
    assert one.phase is Phase.FAILED
    assert str(one.error).startswith("the first")


def test_a_master_that_is_away_is_asked_again_with_longer_waits(one: Replicated) -> None:
    one.start()
    for _ in range(2):
        one.fail(MasterSilent("away"), for_good=False)
        assert one.phase is Phase.WAITING
    assert one.poll(one._retry_at_s - 0.001) is Phase.WAITING
    assert one.poll(one._retry_at_s) is Phase.RUNNING
    assert one.turn == 2
