"""bench.table: a day's figures in Markdown."""

from __future__ import annotations

import pytest

from bench.contest import Figure, Goal, Round
from bench.results import Measured, Results
from bench.table import markdown, number
from tests.bench.figures import figure


def text_of(*figures: Figure, error: str | None = None, scale: float = 1.0) -> str:
    work = Measured(rounds=3, scale=scale, commit="abc1234", figures=figures, error=error)
    return markdown(Results(date="2026-11-22", machine={"processor": "a model", "cores": 2}, works={"a_work": work}))


def test_a_row_has_medians_ratio_spread_goal_and_verdict() -> None:
    rounds = (Round(200_000, 40_000), Round(240_000, 60_000), Round(210_000, 35_000))  # 5, 4, 6
    met = Figure(work="catch-up", ours="by path", against="Spark", unit="records/s", rounds=rounds, goal=Goal(least=4))
    row = "| catch-up | by path | Spark | 210,000 records/s | 40,000 records/s | **5.00** (4.00 – 6.00) | ≥ 4 | yes |"
    assert row in text_of(met).splitlines()


def test_a_missed_goal_is_said() -> None:
    lines = text_of(figure("fresh", 0.8, goal=Goal(most=0.7))).splitlines()
    assert (
        "| fresh | logtwin | Spark | 80 records/s | 100 records/s | **0.80** (0.80 – 0.80) | ≤ 0.7 | **no** |" in lines
    )


def test_machine_and_details_are_below_it_each_in_its_line() -> None:
    text = text_of(figure("catch-up", 4.25, 4.75, 5.0, records=400_000, batch={"plan_ms": 12.345, "files": [1, 2]}))
    assert "processor: a model; cores: 2." in text
    expected = [
        "### catch-up: logtwin, against Spark",
        "",
        "- round by round: 4.25, 4.75, 5.00",
        "- records: 400,000",
        "- batch:",
        "  - plan_ms: 12.3",
        "  - files: 1, 2",
    ]
    assert "\n".join(expected) in text


def test_an_error_and_a_smaller_size_are_said() -> None:
    text = text_of(error="SystemExit: rows are missing", scale=0.02)
    assert "Rounds: 3; size: 0.02 of the full one; commit: abc1234." in text
    assert "**Did not come to its end:** SystemExit: rows are missing" in text


@pytest.mark.parametrize(
    ("value", "expected"), [(1_234_567.8, "1,234,568"), (99.96, "100"), (12.345, "12.3"), (0.01234, "0.0123")]
)
def test_numbers_have_three_digits_that_say_something(value: float, expected: str) -> None:
    assert number(value) == expected
