"""bench.site: a plan for many drivers, from runs of one."""

from dataclasses import replace

import pytest

from bench.site import DOCUMENT, HEAD, MARK, DriverRun, SitePart, in_document, row

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


def test_the_document_has_its_place() -> None:
    assert DOCUMENT.read_text().count(MARK) == 1
    once = in_document(f"a\n{MARK}\n\n| old |\n\nb\n", [HEAD])
    assert in_document(once, [HEAD]) == once
    assert once.endswith("\nb\n")
