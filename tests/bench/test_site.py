"""bench.site: a plan for many drivers, from runs of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.results import Measured, Results, save
from bench.site import DOCUMENT, MARK, DriverRun, SitePart, newest, plan, runs_of, table
from tests.bench.test_results import figure

PART = SitePart("a part", "many_logs", logs=2500, brokers=50, requests=3)


def run(logs: int, *, commits_per_s: float = 1.0, p99_ms: float = 1000) -> DriverRun:
    """One with costs of 2 and of a hundredth for each log."""
    cost = 2 + logs / 100
    return DriverRun(logs, commits_per_s, p99_ms, cost, cost / 10, 1024 * cost, 1000 * cost)


def test_what_drivers_cost_is_a_base_for_each_and_a_share_for_each_log() -> None:
    found = plan(PART, [run(1000), run(10), run(100)])
    assert (found.logs, found.drivers) == (1000, 3)
    in_all = 3 * 2 + 2500 / 100
    assert (found.cores, found.idle_cores, found.gib) == pytest.approx((in_all, in_all / 10, in_all))
    assert found.commits_a_day == 3 * 86_400
    assert found.delta_log_gb_a_day == pytest.approx(in_all * 1000 * 86_400 / 1e9)
    assert found.requests_per_s == 3 * 3 * 50  # every driver has logs of each of the 50 brokers


@pytest.mark.parametrize("too_much", [run(1000, p99_ms=2001), run(1000, commits_per_s=0.94)])
def test_a_driver_carries_what_is_as_fresh_and_commits_as_often_as_few_logs(too_much: DriverRun) -> None:
    assert plan(PART, [run(10), run(100), too_much]).drivers == 25
    assert plan(PART, [run(10), too_much]).cores == pytest.approx(250 * 2.1)  # what the only run of use costs, often


def live(cores: float) -> dict[str, Any]:
    sums = {name: {"jvm": cores, "workers": 1.0} for name in ("cores", "idle_cores", "held_mib")}
    return {**sums, "commits": 60, "measured_s": 60.0, "p99_ms": 1100, "delta_log_bytes": 5000}


def test_runs_are_the_newest_complete_ones_and_have_a_table(tmp_path: Path) -> None:
    runs: dict[str, Any] = {"1 logs": live(1), "64 logs": live(2), "backlog_bytes": 7, "steps": {"files": 1.0}}
    whole = Measured(rounds=1, scale=1.0, commit=None, figures=(figure("w", 1.0, **runs),))
    small = replace(whole, scale=0.1, figures=(figure("w", 1.0, **{**runs, "1 logs": live(9)}),))
    for date, work in (("2026-11-01", whole), ("2026-11-02", small)):
        save(tmp_path, Results(date=date, machine={}, works={"many_logs": work}))
    found = list(runs_of(newest(tmp_path, "many_logs")))
    assert [(one.logs, one.commits_per_s, one.cores) for one in found] == [(1, 1.0, 2.0), (64, 1.0, 3.0)]
    [*_, row] = table({"a part": plan(PART, found)}).splitlines()
    assert row.startswith("| a part | 64 | 40 | ")
    with pytest.raises(SystemExit, match="no runs of many_partitions"):
        newest(tmp_path, "many_partitions")


def test_the_document_has_its_place() -> None:
    assert DOCUMENT.read_text().count(MARK) == 1
