"""Repair: back to the last common point, whatever the master did, and nothing but that, also killed after any step.

Damage of the replica itself is taken out, not gone back for.
"""

import errno
import hashlib
import math
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from pipeline.monitoring.run_state import RunFile
from pipeline.operate import repair as repairing
from sinks.healing.repair_steps import RepairStep
from sinks.proof import stored
from sinks.state import rewrite
from sinks.values.incident import State
from sources.errors import AlreadyRunning, ConfigurationError, Recreated, RepairPending, StorageUnreachable
from sources.loss import Condition
from sources.offsets import Offset, OffsetRange
from tests.pipeline.edited_rows import edit_rows
from tests.pipeline.faulty_log import FILE_SIZE_BYTES, FaultyLog
from tests.pipeline.repair_bench import OTHER, TEST, Bench, newest_file, outcome, rewrite_the_second_record, spoil
from tests.pipeline.test_run_state import run_of
from tests.sinks.killed import Killed, dying_after

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FAULTS = [FaultyLog.lose_a_record, FaultyLog.lose_a_file, FaultyLog.rewrite_from_the_middle, rewrite_the_second_record]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_log_goes_back_to_the_last_common_record(bench: Bench, fault: Callable[[FaultyLog], int]) -> None:
    before, held, position, ledger = bench.rows("log"), bench.log.data(), bench.log.end, bench.rows("ledger")
    common = fault(bench.log)
    at_master = bench.log.data()

    done = bench.repair()
    assert done.back is not None
    gone = [row for row in before if row["offset"] >= common]
    assert (done.back.found.common, done.back.since, done.back.records) == (common, position, len(gone))
    assert done.back.bytes == position - common
    distance = sum(row["end"] > common for row in ledger) + 1
    assert done.comparisons <= 2 * math.log2(distance) + 2
    assert done.back.found.condition is (Condition.ABOVE_MAXIMUM if len(at_master) < position else Condition.REWRITTEN)
    assert bench.rows("log") == before[: len(before) - len(gone)]
    removed = bench.rows("removed")
    assert [{name: row[name] for name in before[0]} for row in removed] == gone
    assert {row["removed_by_epoch"] for row in removed} == {1}
    bench.check_ledger(held, common)
    state = bench.state()
    assert (state.epoch, state.offset, state.branched_at, state.repair) == (1, common, common, None)
    assert state.link is not None
    assert (state.link.end, state.link.checksum) == (
        common,
        f"sha256:{hashlib.sha256(held[state.link.start : common]).hexdigest()}",
    )
    (incident,) = bench.incidents().all()
    assert (incident.epoch, incident.found.range, incident.state) == (1, OffsetRange(common, position), State.HEALED)  # type: ignore[arg-type]


def test_nothing_differs_and_nothing_is_done(bench: Bench) -> None:
    bench.found(Condition.REWRITTEN, 0, bench.log.boundaries[1])
    bench.found(Condition.ABOVE_MAXIMUM, 0, bench.log.end)
    before, versions = bench.rows("log"), bench.versions()
    done = bench.repair()
    assert (done.back, done.taken_out, done.missing, done.position) == (None, (), (), bench.log.end)
    assert done.healed == 2
    assert [row.state for row in bench.incidents().all()] == [State.HEALED, State.HEALED]
    assert bench.rows("log") == before
    assert bench.versions()["ledger"] == versions["ledger"]
    assert (bench.state().epoch, bench.state().offset) == (0, bench.log.end)


def test_nothing_below_the_minimum_of_an_accepted_master_is_kept(bench: Bench) -> None:
    """What lies below its minimum is of another history, which nobody can compare any more."""
    before = bench.offsets("log")
    shutil.rmtree(bench.log.root)
    bench.log.append(random.Random(7), 400)
    bench.log.forget_front(1)
    with pytest.raises(Recreated):
        bench.repair()
    done = bench.repair(accept_master=True)
    assert done.back is not None
    assert (done.position, done.back.records) == (FILE_SIZE_BYTES, len(before))
    assert (bench.rows("log"), bench.rows("ledger")) == ([], [])
    assert bench.offsets("removed") == before
    assert bench.holes() == (OffsetRange(Offset(0), Offset(FILE_SIZE_BYTES)),)
    assert bench.state().first == FILE_SIZE_BYTES


def test_a_log_that_a_job_replicates_is_refused(bench: Bench) -> None:
    bench.log.rewrite_from_the_middle()
    RunFile(str(bench.lake), "job").write(run_of(now=datetime.now(UTC), log_id=str(TEST)))
    with pytest.raises(AlreadyRunning, match="logtwin repair --take-over"):
        said(bench)
    assert bench.state().epoch == 0
    lines = said(bench, take_over=True)
    assert bench.state().epoch == 1
    assert lines[0].startswith("rocketmq/test: rewritten: ")
    assert lines[-1] == f"rocketmq/test: logtwin replicate goes on at {bench.state().offset}"


def said(bench: Bench, *, take_over: bool = False, accept_master: bool = False, dry_run: bool = False) -> list[str]:
    ways = repairing.repair_logs(
        bench.config, "job.toml", take_over=take_over, accept_master=accept_master, dry_run=dry_run
    )
    return list(ways)


def test_what_is_said(bench: Bench) -> None:
    end = bench.log.end
    assert said(bench) == [f"rocketmq/test: nothing that can be compared differs from the master, up to {end}"]
    common = bench.log.lose_a_record()
    assert said(bench, dry_run=True) == [
        f"rocketmq/test: above_maximum: the master's log ends at {common}, the replica at {end}",
        f"rocketmq/test: would go back from {end} to {common}; 1 record, {end - common} B, would go to the table "
        "removed",
    ]
    empty = Bench(bench.spark, bench.folder / "empty")
    shutil.copytree(bench.log.root, empty.log.root)
    assert said(empty) == ["rocketmq/test: nothing was replicated yet, so there is nothing to repair"]
    assert not empty.lake.exists()


def test_several_masters_are_not_accepted_at_once(bench: Bench) -> None:
    (log,) = bench.config.logs
    config = bench.config.model_copy(update={"logs": (log, log.model_copy(update={"id": str(OTHER)}))})
    with pytest.raises(ConfigurationError, match="--accept-master"):
        list(repairing.repair_logs(config, "job.toml", accept_master=True, take_over=False, dry_run=False))


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


@pytest.mark.parametrize("module", [stored, pytest.param(rewrite, marks=pytest.mark.nightly)])
def test_a_file_that_cannot_be_reached_just_now_is_not_taken_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    before, end = bench.rows("log"), bench.log.end
    spoil(newest_file(bench))
    bench.found(Condition.REPLICA_DAMAGED, end - 10, end)

    with monkeypatch.context() as away:
        away.setattr(module, "open_parquet", Mock(side_effect=OSError(errno.EIO, "away")))
        with pytest.raises(StorageUnreachable):
            bench.repair()
    assert bench.holes() == ()
    bench.repair()
    assert bench.rows("log") == [row for row in before if row["offset"] < bench.holes()[0].start]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_damaged_file_of_the_replica_becomes_a_hole(bench: Bench, is_gone: bool) -> None:
    before, end, ledger = bench.rows("log"), bench.log.end, bench.rows("ledger")
    lost = ledger[-1]
    file = newest_file(bench)
    file.unlink() if is_gone else spoil(file)
    bench.found(Condition.REPLICA_DAMAGED, end - 10, end)
    assert bench.look().taken_out == (OffsetRange(lost["start"], lost["end"]),)
    done = bench.repair()
    assert done.taken_out == done.missing == bench.holes() == (OffsetRange(lost["start"], lost["end"]),)
    assert bench.rows("log") == [row for row in before if row["offset"] < lost["start"]]
    assert bench.rows("ledger") == ledger[:-1]
    assert (bench.state().epoch, bench.state().offset, bench.state().repair) == (0, end, None)
    told = [(row.found.range, row.state) for row in bench.incidents().all()]
    assert told == [(bench.holes()[0], State.OPEN), (OffsetRange(Offset(end - 10), end), State.OPEN)]
    again = bench.repair()
    assert (again.taken_out, again.missing) == ((), done.missing)


def test_damaged_rows_that_can_be_read_are_kept(bench: Bench) -> None:
    """A row that is another one, in a file that is sound: as a bit that flipped before it was written."""
    before, lost = bench.rows("log"), bench.rows("ledger")[1]
    edit_rows(bench.lake / "log", {lost["start"]: lambda row: [{**row, "flag": 7}]})
    bench.found(Condition.REPLICA_DAMAGED, lost["start"], lost["start"] + 1)
    bench.repair()
    gone = [row["offset"] for row in before if lost["start"] <= row["offset"] < lost["end"]]
    assert bench.offsets("removed") == gone
    assert bench.offsets("log") == [row["offset"] for row in before if row["offset"] not in gone]


def test_going_back_passes_a_file_that_cannot_be_read(bench: Bench) -> None:
    """Nobody has found it before: the rows cannot be kept, and would have gone anyway."""
    before, lost = bench.rows("log"), bench.rows("ledger")[-1]
    common = bench.log.rewrite_from_the_middle()
    newest_file(bench).write_bytes(b"no Parquet at all")
    done = bench.repair()
    assert done.back is not None
    assert (done.back.found.common, done.position, done.missing, bench.holes()) == (common, common, (), ())
    assert done.taken_out == (OffsetRange(lost["start"], lost["end"]),)
    assert bench.rows("log") == [row for row in before if row["offset"] < common]
    assert bench.offsets("removed") == [row["offset"] for row in before if common <= row["offset"] < lost["start"]]
    assert bench.rows("ledger")[-1]["end"] == common
