"""``python -m bench``: run the benchmarks one after the other, each in a process of its own, and write the results.

The results are written after each benchmark. Exit codes: 0 if all were measured, whether or not goals are met; 1 if one
failed.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum, auto
from pathlib import Path
from typing import Annotated

import typer

from bench.machine import commit, machine
from bench.results import FOLDER, Measured, Results, read_results, save
from bench.run import BenchOutcome, run


class Work(StrEnum):
    """The modules that have a `measure`, in the order in which they are run."""

    CATCH_UP = auto()
    CEILING = auto()
    OVER_HA = auto()
    ELECTED = auto()
    DECODING = auto()
    KAFKA = auto()
    TYPED = auto()
    FRESHNESS = auto()
    TYPED_FRESHNESS = auto()
    KEYED = auto()
    OBJECT_STORE = auto()
    COMMITS = auto()
    QUESTIONS = auto()
    MEMORY = auto()
    MANY_LOGS = auto()
    MANY_PARTITIONS = auto()
    JOINS = auto()
    WAITING = auto()
    CLUSTER = auto()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    only: Annotated[list[Work] | None, typer.Option(help="this work; may be given several times; default: all")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="how often both contestants take their turn")] = 5,
    scale: Annotated[float, typer.Option(min=0.001, help="of the full size; less is a look whether all works")] = 1.0,
    results: Annotated[Path, typer.Option(help="folder of the results")] = FOLDER,
) -> None:
    """Measure ours against what people would use instead, side by side."""
    date = datetime.now(UTC).date().isoformat()  # of the whole run, even if it goes on beyond midnight
    wanted = [work.value for work in Work if work in (only or Work)]
    failed = [name for name in wanted if not _measured(name, rounds, scale, results, date)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


def _measured(name: str, rounds: int, scale: float, folder: Path, date: str) -> bool:
    """Run a benchmark, write and print its results. Returns whether it was completed."""
    print(f"\n{name}: rounds: {rounds}, size: {scale:g} of the full one", flush=True)
    outcome = run(f"bench.{name}", rounds=rounds, scale=scale)
    work = Measured(rounds=rounds, scale=scale, commit=commit(), figures=outcome.figures, error=outcome.error)
    save(folder, _measured_before(folder, date).with_work(name, work).in_order(tuple(Work)))
    _say(name, outcome)
    return outcome.error is None


def _measured_before(folder: Path, date: str) -> Results:
    path = folder / f"{date}.json"
    works = read_results(path).works if path.exists() else {}
    return Results(date=date, machine=machine(), works=works)


def _say(name: str, outcome: BenchOutcome) -> None:
    for one in outcome.figures:
        verdict = "met" if one.is_met else "MISSED"
        print(f"{one.work}: {one.ours} / {one.against}: {one.ratio:.2f}, goal {one.goal} {verdict}", flush=True)
    if outcome.error is not None:
        print(f"{name} failed: {outcome.error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    app()
