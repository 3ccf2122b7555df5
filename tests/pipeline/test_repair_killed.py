"""A repair that is killed after any of its steps: run again, it ends as if it never had been."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sinks.healing.repair_steps import RepairStep
from sinks.values.incident import State
from sources.errors import RepairPending
from sources.loss import Condition
from tests.pipeline.repair_bench import Bench, outcome
from tests.sinks.killed import Killed, dying_after

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.nightly] * (step is not RepairStep.CUT)) for step in RepairStep]
)
def test_killed_after_any_step_it_ends_the_same(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory, step: RepairStep
) -> None:
    common = bench.log.rewrite_from_the_middle()
    for number in range(3):  # other incidents, one of them below the common point
        bench.found(Condition.GAP, common - 10 + 10 * number, common + 10 * number)
    folder = shutil.copytree(bench.folder, tmp_path_factory.mktemp(step.value), dirs_exist_ok=True)
    killed = Bench(bench.spark, Path(folder))
    bench.repair()
    expected = outcome(bench)
    assert [state for *_, state in expected["incidents"]].count(State.OPEN) == 1
    with pytest.raises(Killed):
        killed.repair(dying_after(step))
    if step is not RepairStep.FINISH:
        with pytest.raises(RepairPending):
            killed.replicate()
        assert killed.look().resumed is not None
        assert killed.repair().resumed is not None
    assert killed.repair().back is None
    assert outcome(killed) == expected
