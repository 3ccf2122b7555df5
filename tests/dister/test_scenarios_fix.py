"""Scenarios 36 to 44: a replica that is ahead, files, crashes in a fix, and other leaders.

44, the map after a fix, is in tests/sinks/test_keyed_state.py; 41, where the walk back ends, in
tests/sources/dister/test_check_and_fix.py; 43, a log that is rewritten under a running job, in
tests/pipeline/test_check_and_fix.py.
"""

import logging
from collections.abc import Sequence

import pytest

from sinks.healing.repair_steps import RepairStep
from sinks.history.keyed_state import KeyedStateFollower
from sources.errors import AboveMaximum, RepairPending
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import append_log, dirty, leader, write_log


def dirty_replica(twin: Twin, ids: Sequence[int]) -> None:
    """The replica of a leader that has these."""
    write_log(twin.folder, ids)
    twin.take()
    assert twin.ids() == ids


def test_scenario_36_a_replica_that_is_ahead(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """DI-72.

    DI-92, D-13: (a) dister leaves it alone as long as it is ahead; here it is said, and it goes back at once.
    """
    dirty_replica(twin, leader(10) + dirty(11, 7))
    write_log(twin.folder, leader(10))
    with pytest.raises(AboveMaximum):
        twin.replicate(check_and_fix="off")
    with caplog.at_level(logging.WARNING):
        twin.replicate()
    assert "the master overrules" in caplog.text
    twin.assert_equal()
    assert twin.went_back_to == leader(10)[-1]


def test_scenario_36_a_leader_that_has_grown_meanwhile(twin: Twin) -> None:
    """DI-90: (b) its id is not the leader's. (c) DI-58: nothing is refused for ever, and every later write comes in."""
    dirty_replica(twin, leader(10) + dirty(11, 7))
    write_log(twin.folder, leader(12))
    twin.replicate()
    twin.assert_equal()
    append_log(twin.folder, leader(5, first=13))
    twin.take()
    twin.assert_equal()
    assert (twin.went_back_to, twin.epoch) == (leader(10)[-1], 1)


def test_scenario_38_the_histories_part_in_one_file_and_end_in_the_next(twin: Twin) -> None:
    """DI-85, DI-86, D-3: nothing above the point is left, in any file."""
    common = leader(5, first=99_990)
    dirty_replica(twin, common + dirty(99_995, 5, 20))
    theirs = common + leader(40, first=99_995)
    write_log(twin.folder, theirs)
    twin.replicate()
    twin.assert_equal()
    assert (twin.went_back_to, twin.ids()) == (common[-1], theirs)


@pytest.mark.parametrize("kept", [1, 6])
def test_scenario_39_the_point_itself_is_kept_in_later_files_too(twin: Twin, kept: int) -> None:
    """DI-87, DI-89, D-4: where it is the first or the last entry of the second file."""
    common = leader(2, first=99_998) + leader(kept, first=100_000)
    dirty_replica(twin, common + dirty(100_000 + kept, 5, 2))
    write_log(twin.folder, common)
    twin.repair(lambda step: None)
    twin.open()
    assert twin.position == common[-1] + 1
    twin.assert_equal()


@pytest.mark.parametrize("step", [RepairStep.MARK, RepairStep.CUT, RepairStep.FINISH])
def test_scenario_40_a_crash_after_any_step_of_the_fix(twin: Twin, step: RepairStep) -> None:
    """DI-91, D-24: whoever comes next takes it to the same end. `test_repair.py` has every step."""
    dirty_replica(twin, leader(30) + dirty(31, 5, 5))
    write_log(twin.folder, leader(60))
    with pytest.raises(Killed):
        twin.repair(dying_after(1, step))
    if step is not RepairStep.FINISH:
        with pytest.raises(RepairPending):
            twin.open()
    if step is RepairStep.CUT:
        twin.replicate()
    else:
        twin.repair(lambda done: None)
        twin.take()
    twin.assert_equal()
    assert (twin.went_back_to, twin.epoch) == (leader(30)[-1], 1)


def test_scenario_40_a_crash_between_the_log_and_the_map(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """DI-88: the fix has ended, and the map is still the one of before."""
    dirty_replica(twin, leader(30) + dirty(31, 5, 5))
    write_log(twin.folder, leader(30))

    follow, calls = KeyedStateFollower.follow, 0

    def die_after_the_fix(follower: KeyedStateFollower) -> bool:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Killed("killed")
        return follow(follower)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(KeyedStateFollower, "follow", die_after_the_fix)
        twin.replicate()
    assert twin.ids() == leader(30)
    assert len(twin.kv()) == 35
    twin.replicate()
    twin.assert_equal()
