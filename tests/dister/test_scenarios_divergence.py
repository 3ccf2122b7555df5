"""Scenarios 21 to 35: a replica with entries that its leader never had, by both rules and by the job.

L(n) and X(i, r) of the specification are `leader` and `dirty`; expected are its own figures, as indexes: what faithful
keeps, what safe keeps (0: nothing, a full resync), and how many windows faithful looks at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.dister.check_and_fix import Line, faithful_point, safe_point
from sources.offsets import Offset, OffsetRange
from tests.dister.twin import Twin
from tests.dister_folders import RND, dirty, leader, line, write_log


@dataclass(frozen=True)
class Row:
    """One row of the table; of the replica the entries of the indexes `changed` say something else."""

    replica: Sequence[int]
    leader: int
    faithful: int
    safe: int
    checks: int
    changed: Collection[int] = ()


WITHOUT_5 = [one for one in leader(50) if one // 10_000 != 5]
ROWS = {
    "21": Row(leader(10) + dirty(11, 5), 500, 1, 10, 1),
    "22": Row(leader(10) + dirty(11, 9999), 500, 0, 10, 2),
    "23": Row(leader(999) + dirty(1000, 5), 1049, 1, 999, 1),
    "24": Row(leader(999) + dirty(1000, 9999), 1049, 0, 999, 2),
    "25": Row(leader(1000) + dirty(1001, 5), 1050, 1, 1000, 1),
    "26": Row(leader(1000) + dirty(1001, 9999), 1050, 0, 1000, 3),
    "27": Row(leader(1001) + dirty(1002, 5), 1051, 2, 1001, 1),
    "28-low": Row(leader(2000) + dirty(2001, 5), 2050, 1001, 2000, 1),
    "28-high": Row(leader(2000) + dirty(2001, 9999), 2050, 3, 2000, 2),
    "29-low": Row(leader(3000) + dirty(3001, 5, 20), 3100, 1021, 3000, 2),
    "29-high": Row(leader(3000) + dirty(3001, 9999, 20), 3100, 1022, 3000, 2),
    "30": Row(leader(3000) + dirty(3001, 5, 1500), 5000, 1502, 3000, 3),
    "31": Row(leader(2) + dirty(3, 5), 10, 0, 2, 2),
    "32-low": Row(leader(3) + dirty(4, 5), 10, 1, 3, 1),
    "32-high": Row(leader(3) + dirty(4, 9999), 10, 0, 3, 2),
    "33": Row(dirty(1, 5, 2500), 2600, 0, 0, 4),
    "34-differs": Row(sorted(WITHOUT_5 + dirty(5, 5) + dirty(51, 5)), 100, 6, 4, 1),
    "34-missing": Row(WITHOUT_5 + dirty(51, 5), 100, 6, 4, 1),
    "35": Row(leader(20), 30, 20, 6, 0, changed=[7]),
}
BY_THE_JOB = {
    "safe": ("21", "22", "33"),
    "faithful": ("21", "22"),
}
"""And 34 and 35. The others differ in their figures alone, which both rules are asked for in every row."""


@dataclass(frozen=True)
class Bench:
    """A leader's folder for each row and mode, and one warehouse."""

    spark: SparkSession
    lake: Path
    folder: Path

    def check(self, name: str) -> None:
        """The figures of the row; and where the job has it, the fix goes back that far, and all is equal."""
        row = ROWS[name]
        check_rules(row)
        for mode, index in (("safe", row.safe), ("faithful", row.faithful)):
            if name in BY_THE_JOB[mode]:
                twin = self.by_the_job(name, mode)
                assert twin.went_back_to == (index * 10_000 + RND if index else 0)
                assert twin.epoch == 1
                twin.assert_equal()

    def by_the_job(self, name: str, mode: str) -> Twin:
        """The replica of the dirty history, after a job that met the leader that does not have it."""
        row = ROWS[name]
        twin = Twin(self.spark, self.folder / mode, self.lake, f"{name}-{mode}")
        write_log(twin.folder, row.replica, row.changed)
        twin.take()
        write_log(twin.folder, leader(row.leader))
        twin.replicate(check_and_fix=mode)
        return twin


@pytest.fixture
def bench(session: SparkSession, lake: Path, tmp_path: Path) -> Bench:
    return Bench(session, lake, tmp_path)


def lines(ids: Sequence[int], changed: Collection[int] = ()) -> Iterator[Line]:
    at = 0
    for one in ids:
        yield OffsetRange(Offset(at), Offset(one + 1)), line(one, is_changed=one // 10_000 in changed)
        at = one + 1


def check_rules(row: Row) -> None:
    theirs = leader(row.leader)
    end, walk = faithful_point(lines(row.replica, row.changed), lines(theirs))
    assert ((end - 1) // 10_000 if end else 0, walk.windows) == (row.faithful, row.checks)
    common = safe_point(lines(row.replica, row.changed), lines(theirs), Offset(0))
    assert ((common - 1) // 10_000 if common else 0) == row.safe


def test_scenario_21_one_dirty_entry_below_the_leaders_next(bench: Bench) -> None:
    """DI-73, DI-82, DI-84: the smallest id from which on the window is equal. DI-70: in the end the leader's log."""
    bench.check("21")


def test_scenario_22_one_dirty_entry_above_the_leaders_next(bench: Bench) -> None:
    """DI-81, D-22: the window ends with an entry that the replica lacks. DI-78: all is read anew then."""
    bench.check("22")


def test_scenario_23_a_window_less_one_below_a_dirty_entry(bench: Bench) -> None:
    bench.check("23")


def test_scenario_24_a_window_less_one_and_a_dirty_entry_above(bench: Bench) -> None:
    bench.check("24")


def test_scenario_25_a_whole_window_in_common(bench: Bench) -> None:
    bench.check("25")


def test_scenario_26_a_whole_window_and_a_dirty_entry_above(bench: Bench) -> None:
    bench.check("26")


def test_scenario_27_a_window_and_one_more_in_common(bench: Bench) -> None:
    bench.check("27")


def test_scenario_28_two_windows_in_common(bench: Bench) -> None:
    """DI-74: the second window ends below the first."""
    bench.check("28-low")
    bench.check("28-high")


def test_scenario_29_a_dirty_tail_of_twenty(bench: Bench) -> None:
    bench.check("29-low")
    bench.check("29-high")


def test_scenario_30_a_dirty_tail_longer_than_a_window(bench: Bench) -> None:
    """DI-79: as many of the replica's own ids as the window has."""
    bench.check("30")


def test_scenario_31_two_in_common_are_too_few_for_dister(bench: Bench) -> None:
    """DI-80, D-23."""
    bench.check("31")


def test_scenario_32_three_in_common_are_enough(bench: Bench) -> None:
    """DI-80, DI-83, D-1: dister never gets that far; the rule that it means does."""
    bench.check("32-low")
    bench.check("32-high")


def test_scenario_33_nothing_in_common(bench: Bench) -> None:
    """DI-78, D-2: dister looks for ever."""
    bench.check("33")


def test_scenario_34_a_difference_before_what_is_equal(bench: Bench) -> None:
    """D-21: safe finds it, whether the entry differs or is missing."""
    for name in ("34-differs", "34-missing"):
        check_rules(ROWS[name])
        safe = bench.by_the_job(name, "safe")
        assert safe.went_back_to == leader(4)[-1]
        safe.assert_equal()


def test_scenario_34_faithful_keeps_a_wrong_prefix(bench: Bench) -> None:
    """D-21: it believes what lies before the point, as dister means it."""
    faithful = bench.by_the_job("34-differs", "faithful")
    assert faithful.went_back_to == leader(6)[-1]
    assert faithful.ids() == sorted([*(one for one in leader(100) if one // 10_000 != 5), *dirty(5, 5)])


def test_scenario_35_the_same_ids_and_other_content(bench: Bench) -> None:
    """D-21: by ids alone nothing differs, and the replica goes on. Safe compares what the entries say."""
    check_rules(ROWS["35"])
    safe, faithful = bench.by_the_job("35", "safe"), bench.by_the_job("35", "faithful")
    assert safe.went_back_to == leader(6)[-1]
    safe.assert_equal()
    assert faithful.went_back_to is None
    assert faithful.ids() == leader(30)
    assert faithful.lines() == b"".join(line(one, is_changed=one // 10_000 == 7) for one in leader(30))
