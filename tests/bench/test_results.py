"""bench.results: what is written can be read again, and a day's works replace and keep each other."""

from __future__ import annotations

from pathlib import Path

from bench.contest import Goal
from bench.results import Measured, Results, read_results, save
from tests.bench.figures import figure

DATE = "2026-11-22"
CATCH_UP = figure("catch-up", 4.4, 4.0, 5.0, records=400_000, breakdown={"plan_ms": 12.5}, sizes=[1024, 128])
KAFKA = figure("Kafka", 1.4, goal=Goal(least=1.5))


def measured(*figures: object, error: str | None = None, rounds: int = 5) -> Measured:
    return Measured(rounds=rounds, scale=1.0, commit="abc1234", figures=figures, error=error)  # type: ignore[arg-type]


def results(**works: Measured) -> Results:
    return Results(date=DATE, machine={"processor": "a model", "cores": 2, "memory GB": 25.2}, works=works)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = results(catch_up=measured(CATCH_UP, KAFKA), memory=measured(error="SystemExit: rows are missing"))
    save(tmp_path / "new", written)
    assert read_results(tmp_path / "new" / f"{DATE}.json") == written


def test_all_three_files_are_there_and_nothing_else(tmp_path: Path) -> None:
    save(tmp_path, results(catch_up=measured(CATCH_UP)))
    save(tmp_path, results(catch_up=measured(CATCH_UP), kafka=measured(KAFKA)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{DATE}.{suffix}" for suffix in ("json", "md", "svg")]


def test_measured_again_a_work_replaces_its_figures_and_no_others() -> None:
    again = measured(figure("catch-up", 6.0), rounds=1)
    day = results(catch_up=measured(CATCH_UP), kafka=measured(KAFKA)).with_work("catch_up", again)
    assert day.works == {"catch_up": again, "kafka": measured(KAFKA)}


def test_a_failure_takes_away_nothing_that_was_measured() -> None:
    failed = measured(figure("catch-up", 6.0), error="OSError: no space")
    assert results(catch_up=measured(CATCH_UP)).with_work("catch_up", failed).works["catch_up"].figures == (CATCH_UP,)


def test_a_failure_is_kept_with_its_figures_until_the_work_comes_to_its_end() -> None:
    failed = measured(KAFKA, error="OSError: no space")
    day = results().with_work("kafka", failed)
    assert day.works == {"kafka": failed}
    assert day.with_work("kafka", measured(KAFKA)).works == {"kafka": measured(KAFKA)}


def test_works_stand_in_their_order_whatever_was_measured_first() -> None:
    day = results().with_work("kafka", measured(KAFKA)).with_work("catch_up", measured(CATCH_UP))
    ordered = day.in_order(("catch_up", "over_ha", "kafka"))
    assert list(ordered.works) == ["catch_up", "kafka"]
    assert ordered.figures == (CATCH_UP, KAFKA)
