"""bench.results, and what a person is shown of them: `bench.table`, `bench.plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.contest import Figure, Goal, Round
from bench.results import Measured, Results, read_results, save
from bench.table import markdown

DATE = "2026-11-22"


def figure(work: str, *ratios: float, goal: Goal = Goal(least=4), **details: Any) -> Figure:  # noqa: B008 - frozen
    """One whose `against` is always 100, so that `ours` is a hundred times the ratio."""
    rounds = tuple(Round(ratio * 100.0, 100.0) for ratio in ratios)
    return Figure(
        work=work, ours="logtwin", against="Spark", unit="records/s", rounds=rounds, goal=goal, details=details
    )


CATCH_UP = figure("catch-up", 4.4, 4.0, 5.0, records=400_000, breakdown={"plan_ms": 12.345}, sizes=[1024, 128])
KAFKA = figure("Kafka", 1.4, goal=Goal(least=1.5))


def measured(*figures: Figure, error: str | None = None, rounds: int = 5, scale: float = 1.0) -> Measured:
    return Measured(rounds=rounds, scale=scale, commit="abc1234", figures=figures, error=error)


def results(**works: Measured) -> Results:
    return Results(date=DATE, machine={"processor": "a model", "cores": 2}, works=works)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = results(catch_up=measured(CATCH_UP, KAFKA), memory=measured(error="SystemExit: rows are missing"))
    for _ in range(2):
        save(tmp_path / "new", written)
    assert read_results(tmp_path / "new" / f"{DATE}.json") == written
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"{DATE}.{suffix}" for suffix in ("json", "md", "svg")]


def test_a_work_replaces_its_own_figures_unless_it_fails() -> None:
    again, failed = measured(figure("catch-up", 6.0), rounds=1), measured(KAFKA, error="OSError: no space")
    day = results().with_work("kafka", failed)
    assert day.works == {"kafka": failed}
    day = day.with_work("kafka", measured(KAFKA)).with_work("kafka", failed)
    day = day.with_work("catch_up", measured(CATCH_UP)).with_work("catch_up", again)
    assert day.works == {"kafka": measured(KAFKA), "catch_up": again}
    assert list(day.in_order(("catch_up", "over_ha", "kafka")).works) == ["catch_up", "kafka"]


def test_a_table_says_medians_goals_details_and_errors() -> None:
    text = markdown(results(some=measured(CATCH_UP, KAFKA, error="SystemExit: rows are missing", scale=0.02)))
    rows = [line for line in text.splitlines() if line.startswith(("| catch-up ", "| Kafka "))]
    assert [row.partition("| Spark | ")[2] for row in rows] == [
        "440 records/s | 100 records/s | **4.40** (4.00 – 5.00) | ≥ 4 | yes |",
        "140 records/s | 100 records/s | **1.40** (1.40 – 1.40) | ≥ 1.5 | **no** |",
    ]
    assert "processor: a model; cores: 2." in text
    details = ["- round by round: 4.40, 4.00, 5.00", "- records: 400,000", "- breakdown:", "  - plan_ms: 12.3"]
    assert "\n".join(["### catch-up: logtwin, against Spark", "", *details, "- sizes: 1,024, 128"]) in text
    assert "Rounds: 5; size: 0.02 of the full one; commit: abc1234." in text
    assert "**Did not come to its end:** SystemExit: rows are missing" in text


def test_a_picture_has_the_name_the_ratio_and_the_goal_of_each_figure() -> None:
    from bench.plot import svg  # here: matplotlib takes as long to import as all that this process tests of benchmarks

    root = ElementTree.fromstring(svg((CATCH_UP, KAFKA)))  # noqa: S314 - our own picture
    said = {"".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"catch-up", "4.40 ×", "goal ≥ 4", "Kafka", "1.40 ×", "goal ≥ 1.5, missed"} <= said
