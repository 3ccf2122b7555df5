"""bench.site: a plan for many drivers, from runs of one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.contest import Figure, Goal, Round
from bench.results import Measured, Results, save
from bench.site import DOCUMENT, HEAD, MARK, DriverRun, SitePart, in_document, newest, row

PART = SitePart("a part", "many_logs", logs=2500, brokers=50, looks=3, reads=2)
RUNS = [DriverRun(logs, batch_s, batch_s, 0.1, 2.0, 1000.0 * logs) for logs, batch_s in ((10, 0.1), (1000, 1.5))]


def planned(interval_s: float, part: SitePart = PART) -> dict[str, str]:
    return dict(zip(HEAD, row(part, interval_s, RUNS), strict=True))


def test_a_driver_carries_what_leaves_it_time_and_a_table_takes_so_many_commits() -> None:
    often, seldom = planned(1), planned(3)
    assert [(one["logs of a driver"], one["drivers"], one["warehouses"]) for one in (often, seldom)] == [
        ("10", "250", "50"), ("1,000", "3", "1"),
    ]  # fmt: skip
    assert (often["memory"], seldom["memory"], seldom["when quiet"]) == ("500 GiB", "6 GiB", "0.3")
    assert (seldom["commits a day"], seldom["Delta log a day"]) == ("86,400", "86.4 GB")
    assert seldom["cores"] == f"{0.3 + 1.5 + 40e-6 * 2500 / 3 + 4e-6 * 2500:.3g}"
    assert seldom["requests to brokers"] == "400/s"  # of 3 × 50: every driver has logs of each broker
    assert seldom["oldest record in it"] == "4.5 s"
    assert planned(3, replace(PART, logs=500))["cores"] == "0.6"  # of one driver, beside which nobody commits
    with pytest.raises(ValueError, match="empty"):
        planned(0.1)


def live(cores: float) -> dict[str, Any]:
    sums = {name: {"jvm": of} for name, of in (("cores", cores), ("idle_cores", 1.0), ("held_mib", 2048))}
    return {**sums, "commits": 60, "measured_s": 30.0, "batch_ms": {"addBatch": 250}, "delta_log_bytes": 5000}


def figure(details: dict[str, Any]) -> Figure:
    return Figure(work="w", ours="o", against="a", unit="u", rounds=(Round(1, 1),), goal=Goal(least=1), details=details)


def test_runs_are_the_newest_complete_ones(tmp_path: Path) -> None:
    runs: dict[str, Any] = {"1 logs": live(2), "64 logs": live(3), "backlog_bytes": 7, "steps": {"files": 1.0}}
    whole = Measured(rounds=1, scale=1.0, commit=None, figures=(figure(runs),))
    small = replace(whole, scale=0.1, figures=(figure({**runs, "1 logs": live(9)}),))
    for date, work in (("2026-11-01", whole), ("2026-11-02", small)):
        save(tmp_path, Results(date=date, machine={}, works={"many_logs": work}))
    assert newest(tmp_path, "many_logs") == [
        DriverRun(1, 0.25, 0.5, 1.0, 2.0, 5000), DriverRun(64, 0.25, 1.0, 1.0, 2.0, 5000),
    ]  # fmt: skip
    assert newest(tmp_path, "many_partitions") == []


def test_the_document_has_its_place() -> None:
    assert DOCUMENT.read_text().count(MARK) == 1
    once = in_document(f"a\n{MARK}\n\n| old |\n\nb\n", [HEAD])
    assert in_document(once, [HEAD]) == once
    assert once.endswith("\nb\n")
