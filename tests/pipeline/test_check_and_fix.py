"""A leader with another past: when a job goes back to what both share by itself, and when it does not.

How far it goes back in each scenario of dister's specification: `tests/dister`.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from pipeline.job import replicated_logs
from pipeline.job.losses import mend
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sinks.healing.repair import Repair
from sinks.healing.repair_steps import RepairStep
from sinks.state.fence import this_writer
from sources.dister.layout import ENTRY_LOG
from sources.errors import MasterSilent, Recreated, RepairPending, Rewritten, TakenOver
from sources.registry import open_log
from tests.around import at_first
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import dirty, leader, write_log
from tests.pipeline import running
from tests.pipeline.group_in_process import also_with_spark
from tests.sinks.batches import Solo

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def twin(session: SparkSession, tmp_path: Path) -> Twin:
    return Twin(session, tmp_path / "leader", tmp_path / "lake", "a")


def test_no_repair_without_a_difference(twin: Twin) -> None:
    """The leader was seen while it wrote its log anew: that is waited out."""
    write_log(twin.folder, leader(10))
    twin.take()
    with pytest.raises(MasterSilent):
        mend(twin.spark, str(twin.lake), twin.log, this_writer(), is_owner=False)
    assert (twin.epoch, twin.incidents()) == (0, [])


def test_a_job_that_lost_its_log_mends_nothing(twin: Twin) -> None:
    """DI-52, DI-71."""
    write_log(twin.folder, leader(10))
    twin.take()
    older = this_writer()
    Solo(twin.spark, str(twin.lake), twin.log, writer=older).open()
    twin.open()
    write_log(twin.folder, leader(5))
    with pytest.raises(TakenOver):
        mend(twin.spark, str(twin.lake), twin.log, older, is_owner=True)
    assert twin.state is not None
    assert (twin.state.epoch, twin.state.repair) == (0, None)


def test_off_leaves_the_repair_to_a_person(twin: Twin) -> None:
    mine = leader(10) + dirty(11, 5, 3)
    write_log(twin.folder, mine)
    twin.replicate(check_and_fix="off")
    write_log(twin.folder, leader(20))
    with pytest.raises(Rewritten) as caught:
        twin.replicate(check_and_fix="off")
    assert caught.value.log == "dister/a"
    assert "logtwin repair" in (caught.value.hint or "")
    assert (twin.ids(), twin.epoch) == (mine, 0)
    log = open_log(twin.config(check_and_fix="off").logs[0])
    with pytest.raises(Killed):
        Repair(twin.spark, str(twin.lake), log, on_step=dying_after(1, RepairStep.CUT)).run()
    with pytest.raises(RepairPending):
        twin.replicate(check_and_fix="off")
    assert Repair(twin.spark, str(twin.lake), log).run().position == leader(10)[-1] + 1
    twin.replicate(check_and_fix="off")
    twin.assert_equal()


@also_with_spark
def test_43_a_log_that_is_rewritten_under_a_running_job(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is longer than before; a repair that fails is tried again, after a wait."""
    failed = at_first(monkeypatch, replicated_logs, "mend", Mock(side_effect=MasterSilent("gone for a moment")))

    def writer() -> object:
        return twin.state and twin.state.writer

    write_log(twin.folder, leader(30))
    running.register(twin.spark)
    job = Job(twin.spark, twin.config(), available_now=False)
    job.start()
    try:
        running.run_until(job, lambda now: now.records == 30)
        first = writer()
        replace_at_once(twin, leader(10) + dirty(11, 7, 60))
        now = running.run_until(job, lambda now: now.records == 90)
        twin.assert_equal()
        assert (twin.epoch, writer()) == (1, first)
        assert failed
        assert now.failures["MasterSilent"] == 1

        replace_at_once(twin, leader(5))
        now = running.run_until(job, lambda now: now.position == leader(5)[-1] + 1 and now.phase is Phase.RUNNING)
        twin.assert_equal()
        assert (twin.epoch, writer()) == (2, first)
        assert now.incidents["above_maximum"] == 1

        shutil.rmtree(twin.folder / ENTRY_LOG)
        now = running.run_until(job, lambda now: now.phase is Phase.FAILED)
        assert isinstance(now.error, Recreated)
    finally:
        job.close()
    assert twin.ids() == leader(5)


def replace_at_once(twin: Twin, ids: Sequence[int]) -> None:
    """Another log at the same place; of these, small ones, no reader sees a half."""
    new = twin.folder.with_name("new")
    write_log(new, ids)
    (new / ENTRY_LOG / "0/0").replace(twin.folder / ENTRY_LOG / "0/0")
