"""Scenarios 17 to 20: how much comes in at once, an empty replica, and a leader that has nothing to say."""

import errno
import os
import time
from bisect import bisect_left
from pathlib import Path

import pytest

from pipeline.job.replicate import Job
from sinks.batch.proof import BatchStep
from sources.dister.layout import ENTRY_LOG
from sources.errors import MasterSilent, Recreated
from sources.offsets import Offset
from sources.options import CheckAndFix
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import append_log, leader, write_log
from tests.pipeline.running import run_until
from tests.sources.dister.test_check_and_fix import lines, log_of


@pytest.mark.parametrize(("behind", "batches"), [(0, []), (1, [1]), (10_000, [10_000]), (10_001, [10_000, 1])])
def test_scenario_17_behind_by_so_many_entries_it_takes_so_many_batches(
    twin: Twin, behind: int, batches: list[int]
) -> None:
    """DI-57, DI-59: none behind, nothing to do; else ten thousand at most. As the job plans them."""
    ids = leader(3 + behind)
    write_log(twin.folder, ids)
    at, found = Offset(ids[2] + 1), []
    while at < ids[-1] + 1:
        end = twin.log.end_of_batch(at, Offset(ids[-1] + 1), 10**9)
        found.append(bisect_left(ids, end) - bisect_left(ids, at))
        at = end
    assert found == batches


def test_scenario_17_killed_after_the_second_of_three_batches_it_goes_on_there(twin: Twin) -> None:
    """DI-54, DI-60: what is committed is where the next one begins."""
    ids = leader(250)
    write_log(twin.folder, ids)
    with pytest.raises(Killed):
        twin.replicate(dying_after(2, BatchStep.COMMIT), max_entries_per_trigger=100)
    assert twin.position == ids[199] + 1
    twin.replicate()
    assert twin.batches() == [100, 100, 50]
    twin.assert_equal()


def test_scenario_19_an_empty_leader_is_more_likely_a_wrong_path(twin: Twin) -> None:
    """DI-70, DI-92: dister does nothing. Here it is refused, and with the switch everything goes."""
    ids = leader(5)
    write_log(twin.folder, ids)
    twin.take()
    write_log(twin.folder, [])
    with pytest.raises(Recreated):
        twin.replicate()
    assert twin.ids() == ids
    twin.repair(lambda step: None, accept_master=True)
    twin.open()
    assert (twin.ids(), twin.kv(), twin.position) == ([], {}, 0)
    append_log(twin.folder, leader(2))
    twin.replicate()
    twin.assert_equal()


def test_scenario_20_a_leader_that_cannot_be_read_is_asked_again_and_not_all_the_time(twin: Twin) -> None:
    """DI-62, DI-64, D-20: the same batch is asked for again after a while, each time a longer one."""
    write_log(twin.folder, leader(5))
    attempts: list[float] = []

    def fail_twice(step: BatchStep) -> None:
        if step is BatchStep.FILES:
            attempts.append(time.monotonic())
            if len(attempts) <= 2:
                raise MasterSilent("the leader's file cannot be read")

    config = twin.config().model_copy(update={"retry_wait_max_s": 30.0})  # most tests wait less
    job = Job(twin.spark, config, available_now=False, on_step=fail_twice)
    job.start()
    progress = run_until(job, lambda progress: progress.position == leader(5)[-1] + 1)
    job.close()
    assert progress.failures == {"MasterSilent": 2}
    assert len(attempts) == 3
    assert attempts[1] - attempts[0] >= 1.0
    assert attempts[2] - attempts[1] >= 2.0
    twin.assert_equal()


# files of a leader that cannot be read at the moment: nothing is concluded from it, and it is tried again


class Reading:
    """Counts reads of files, and fails one of them."""

    def __init__(self) -> None:
        self._pread = os.pread
        self._fails_at = 0
        self.count = 0

    def fail_at(self, number: int) -> None:
        self._fails_at, self.count = number, 0

    def pread(self, file: int, length: int, at: int) -> bytes:
        self.count += 1
        if self.count == self._fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._pread(file, length, at)


@pytest.mark.parametrize("mode", ["safe", "faithful"])
def test_an_error_while_looking_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CheckAndFix
) -> None:
    """DI-77: wherever in the log it happens. The next look finds what is there."""
    ids = leader(1_200)
    write_log(tmp_path, ids)
    log = log_of(tmp_path, mode)
    reading = Reading()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", reading.pread)
        assert log.common_offset(lines(ids[:-1])) == ids[-2] + 1
        in_all = reading.count
        for fails_at in range(1, in_all + 1, max(1, in_all // 3)):
            reading.fail_at(fails_at)
            with pytest.raises(MasterSilent):
                log.common_offset(lines(ids[:-1]))
    assert log.common_offset(lines(ids[:-1])) == ids[-2] + 1


@pytest.mark.parametrize("refusal", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_scenario_20_a_file_that_cannot_be_read_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    """It names the file and what the system said."""
    write_log(tmp_path, leader(5))
    opened = Path.open

    def refused(path: Path, *arguments: object, **options: object) -> object:
        if path.name == "0":
            raise OSError(refusal, os.strerror(refusal), str(path))
        return opened(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(MasterSilent, match=str(tmp_path / ENTRY_LOG / "0" / "0")) as caught:
        log_of(tmp_path).bounds()
    assert caught.value.is_transient
    assert caught.value.found == os.strerror(refusal)
    assert caught.value.hint
