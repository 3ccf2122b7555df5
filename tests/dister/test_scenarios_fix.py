"""Scenarios 21 to 44: a replica with entries that its leader never had, one that is ahead, files, crashes in a fix, and
other leaders. Histories are made of `leader` and `dirty`, L(n) and X(i, r) of the specification.

What both rules find, in every scenario, and where the walk back ends (41), tests/sources/dister/test_check_and_fix.py
asks them; 44, the map after a fix, is in tests/sinks/test_keyed_state.py; 43, a log that is rewritten under a running
job, in tests/pipeline/test_check_and_fix.py.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from sinks.batch.proof import BatchStep
from sinks.healing.repair_steps import RepairStep
from sinks.history.key_values import KeyedStateFollower
from sources.errors import AboveMaximum, RepairPending
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import append_log, dirty, leader, line, write_log


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


# 21 to 35: how far the job goes back, and that all is equal then


WITHOUT_5 = [one for one in leader(50) if one // 10_000 != 5]


def met(twin: Twin, mode: str, replica: Sequence[int], count: int, changed: Collection[int] = ()) -> Twin:
    """The replica of a history, after a job that met a leader of so many entries that does not have all of it."""
    twin = replace(twin, folder=twin.folder / mode, group=f"{twin.group}-{mode}-{len(replica)}")
    write_log(twin.folder, replica, changed)
    twin.take()
    write_log(twin.folder, leader(count))
    twin.replicate(check_and_fix=mode)
    return twin


def assert_went_back(twin: Twin, index: int) -> None:
    """The fix kept the leader's entries up to that index, 0 for none; then all is equal."""
    assert (twin.went_back_to, twin.epoch) == (leader(index)[-1] if index else 0, 1)
    twin.assert_equal()


def test_scenario_21_one_dirty_entry_below_the_leaders_next(twin: Twin) -> None:
    """DI-73, DI-82, DI-84: the smallest id from which on the window is equal. DI-70: in the end the leader's log."""
    assert_went_back(met(twin, "safe", leader(10) + dirty(11, 5), 50), 10)
    assert_went_back(met(twin, "faithful", leader(10) + dirty(11, 5), 50), 1)


def test_scenario_22_one_dirty_entry_above_the_leaders_next(twin: Twin) -> None:
    """DI-81, D-22: the window ends with an entry that the replica lacks. DI-78: all is read anew then."""
    assert_went_back(met(twin, "safe", leader(10) + dirty(11, 9999), 50), 10)
    assert_went_back(met(twin, "faithful", leader(10) + dirty(11, 9999), 50), 0)


def test_scenario_33_nothing_in_common(twin: Twin) -> None:
    """DI-78, D-2: dister looks for ever."""
    assert_went_back(met(twin, "safe", dirty(1, 5, 25), 40), 0)


@pytest.mark.parametrize("fifth", [[], dirty(5, 5)])
def test_scenario_34_a_difference_before_what_is_equal(twin: Twin, fifth: list[int]) -> None:
    """D-21: safe finds it, whether the entry is missing or differs."""
    assert_went_back(met(twin, "safe", sorted(WITHOUT_5 + fifth + dirty(51, 5)), 100), 4)


def test_scenario_34_faithful_keeps_a_wrong_prefix(twin: Twin) -> None:
    """D-21: it believes what lies before the point, as dister means it."""
    faithful = met(twin, "faithful", sorted(WITHOUT_5 + dirty(5, 5) + dirty(51, 5)), 100)
    assert faithful.went_back_to == leader(6)[-1]
    assert faithful.ids() == sorted([*(one for one in leader(100) if one // 10_000 != 5), *dirty(5, 5)])


def test_scenario_35_the_same_ids_and_other_content(twin: Twin) -> None:
    """D-21: by ids alone nothing differs, and the replica goes on. Safe compares what the entries say."""
    assert_went_back(met(twin, "safe", leader(20), 30, changed=[7]), 6)
    faithful = met(twin, "faithful", leader(20), 30, changed=[7])
    assert faithful.went_back_to is None
    assert faithful.ids() == leader(30)
    assert faithful.lines() == b"".join(line(one, is_changed=one // 10_000 == 7) for one in leader(30))


# with Spark: batches, a kill, and a leader that overrules


@pytest.mark.spark
def test_a_killed_job_goes_on_and_follows_a_leader_that_overrules(spark_twin: Twin) -> None:
    write_log(spark_twin.folder, leader(30) + dirty(31, 5, 20))
    with pytest.raises(Killed):
        spark_twin.replicate(dying_after(2, BatchStep.COMMIT), max_entries_per_trigger=20)
    assert spark_twin.position == dirty(40, 5)[-1] + 1
    write_log(spark_twin.folder, leader(60))
    spark_twin.replicate()
    spark_twin.assert_equal()
    assert (spark_twin.went_back_to, spark_twin.epoch) == (leader(30)[-1], 1)
