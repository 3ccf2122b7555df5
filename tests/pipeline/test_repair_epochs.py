"""What the epochs of an elected master do to a replica: by files whose list of epochs is given."""

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pytest

from pipeline.inspect.coverage import coverage_blocks, coverages
from sinks.healing.repair import Repair
from sinks.healing.repair_steps import RepairStep
from sinks.state.log_table import LogTable
from sinks.values.incident import State
from sources.epochs import Epoch, Epochs, Parting, parting
from sources.errors import EpochsContradict
from sources.loss import Condition
from sources.offsets import Offset
from sources.registry import open_log
from sources.rocketmq.log import RocketMQLog
from tests.log_lines import printed
from tests.pipeline.read_back import assert_whole
from tests.pipeline.repair_bench import Bench
from tests.sinks.killed import Killed, dying_after

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedFiles(RocketMQLog):
    """A log by path, of a master that would list these epochs."""

    epochs: Epochs = ()

    def parting(self) -> Parting | None:
        return parting(self.known.epochs, self.known.offset or Offset(0), self.epochs, self.bounds().end)


def listed(*epochs: tuple[int, int]) -> Epochs:
    return tuple(Epoch(number, Offset(start)) for number, start in epochs)


OURS = listed((1, 0), (2, 300))


def following(bench: Bench, epochs: Epochs = OURS) -> None:
    """The replica has been read from a master with `epochs`."""
    table = LogTable(bench.spark, f"{bench.lake}/log", bench.log_id)
    table.mark(table.read(), replace(bench.state(), epochs=epochs, commit=uuid.uuid4().hex))


def repair(bench: Bench, theirs: Epochs, on_step: Callable[[RepairStep], None] = lambda step: None) -> Repair:
    plain = open_log(bench.config.logs[0])
    assert isinstance(plain, RocketMQLog)
    values = {field.name: getattr(plain, field.name) for field in fields(plain)}
    return Repair(bench.spark, str(bench.lake), ElectedFiles(**values, epochs=theirs), on_step=on_step)


def test_what_lies_above_the_common_point_goes_and_both_epochs_are_named(bench: Bench) -> None:
    following(bench)
    position, common = bench.log.end, bench.log.rewrite_from_the_middle()
    done = repair(bench, listed((1, 0), (2, 300), (3, common))).run()
    assert done.back is not None
    assert (done.back.found.condition, done.back.found.common) == (Condition.FAILED_OVER, common)
    assert max(bench.offsets("log")) < common == min(bench.offsets("removed"))
    state = bench.state()
    assert (state.epoch, state.offset, state.epochs) == (1, common, OURS)
    (incident,) = bench.incidents().all()
    assert (incident.found.condition, incident.state) == (Condition.FAILED_OVER, State.HEALED)
    assert incident.found.cause == (
        f"the replica has epoch 2 from 300 on, up to {position}; the master has epoch 3 from {common} on"
    )


def test_coverage_names_the_elections(bench: Bench) -> None:
    """The last one for people, all of them for programs."""
    known = (OURS[0], replace(OURS[1], master="10.0.0.5:10912", since_us=1_700_000_000_123_000))
    following(bench, known)
    (found,) = coverages(bench.config)
    assert found.as_json()["elections"] == [
        {"number": 1, "start": 0, "master": None, "since": None},
        {"number": 2, "start": 300, "master": "10.0.0.5:10912", "since": "2023-11-14T22:13:20.123+00:00"},
    ]
    assert "10.0.0.5:10912, election 2, from 300 on" in printed(coverage_blocks([found]), width=100)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.nightly] * (step is not RepairStep.CUT)) for step in RepairStep]
)
def test_killed_after_any_step_the_next_job_takes_it_to_its_end(bench: Bench, step: RepairStep) -> None:
    following(bench)
    common = bench.log.rewrite_from_the_middle()
    bench.log.append(random.Random(4), 20)
    theirs = listed((1, 0), (2, 300), (3, common))
    with pytest.raises(Killed):
        repair(bench, theirs, dying_after(step)).run()
    bench.replicate()
    assert_whole(bench.lake, bench.log.data())
    assert bench.state().epoch == 1
    assert min(bench.offsets("removed")) == common
    assert [row.state for row in bench.incidents().all()] == [State.HEALED]


def test_bytes_that_contradict_the_epochs_have_to_be_accepted(bench: Bench) -> None:
    following(bench)
    later, common = bench.log.boundaries[-2], bench.log.rewrite_from_the_middle()
    theirs, rows = listed((1, 0), (2, 300), (3, later)), bench.rows("log")
    with pytest.raises(EpochsContradict, match=f"by their bytes up to {common} only"):
        repair(bench, theirs).run()
    assert (bench.rows("log"), bench.state().epoch) == (rows, 0)
    done = repair(bench, theirs).run(accept_master=True)
    assert done.back is not None
    assert (done.back.found.condition, done.back.found.common) == (Condition.EPOCHS_CONTRADICT, common)
    assert (bench.state().offset, bench.state().epochs) == (common, ())  # the master's own come with the next batch


def test_a_list_with_nothing_in_common_has_to_be_accepted(bench: Bench) -> None:
    """As of controllers that began to count anew: not a byte differs."""
    following(bench)
    theirs = listed((7, 0))
    with pytest.raises(EpochsContradict, match="the replica's end with epoch 2 from 300 on"):
        repair(bench, theirs).run()
    assert repair(bench, theirs).run(accept_master=True).back is None
    assert (bench.state().epoch, bench.state().epochs) == (0, ())
    assert repair(bench, theirs).run().back is None
