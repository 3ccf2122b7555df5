"""Scenarios 21 to 35: a replica with entries that its leader never had, by the job.

What both rules find, in every scenario, tests/sources/dister/test_check_and_fix.py asks them; here it is how far the
job goes back, and that all is equal then. Histories are made of `leader` and `dirty`, L(n) and X(i, r) of the
specification.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from sinks.batch.result import BatchStep
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import dirty, leader, line, write_log

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
