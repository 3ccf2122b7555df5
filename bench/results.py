"""The results of a day: the figures of each benchmark, as JSON that can be read again.

`<date>.json` has every round. Medians, ratios and whether a goal is met are there for human readers, and are computed
again by `read_results`. `<date>.md` (`bench.table`) and `<date>.svg` (`bench.plot`) are made from the same figures. A
benchmark that is measured again on that day replaces its figures; those of the others stay.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contest import Figure, Goal, Round
from pipeline.sql.output import replacing

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figures of one benchmark, at `scale` of its size, with the code of `commit`.

    With an `error` it was not completed, and `figures` are those before the error.
    """

    rounds: int
    scale: float
    commit: str | None
    figures: tuple[Figure, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of one `date` (YYYY-MM-DD), on one machine; `works` are benchmarks by name."""

    date: str
    machine: Mapping[str, Any]
    works: Mapping[str, Measured] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(figure for work in self.works.values() for figure in work.figures)

    def with_work(self, name: str, work: Measured) -> Results:
        """The results with `work` in place of the one by this name, unless that would replace figures by a failure."""
        if work.error is not None and name in self.works and self.works[name].error is None:
            return self
        return Results(date=self.date, machine=self.machine, works={**self.works, name: work})

    def in_order(self, names: tuple[str, ...]) -> Results:
        """The results in the order of `names`, so that a file does not depend on the order of measurement."""
        works = {name: self.works[name] for name in names if name in self.works}
        return Results(date=self.date, machine=self.machine, works=works)


def save(folder: Path, results: Results) -> None:
    """Write all three files, each atomically. Raises OSError."""
    from bench.plot import svg  # here, so that matplotlib is loaded only to save results
    from bench.table import markdown

    folder.mkdir(parents=True, exist_ok=True)
    written = {"json": _json(results), "md": markdown(results), "svg": svg(results.figures)}
    for suffix, text in written.items():
        with replacing(folder / f"{results.date}.{suffix}") as file:
            file.write(text.encode())


def read_results(path: Path) -> Results:
    """Read what `save` wrote to `path`, a JSON file. Raises OSError, and KeyError or ValueError for another file."""
    given = json.loads(path.read_text())
    works = {name: _measured(work) for name, work in given["works"].items()}
    return Results(date=given["date"], machine=given["machine"], works=works)


def figure_as_json(figure: Figure) -> dict[str, Any]:
    return {
        "work": figure.work,
        "ours": figure.ours,
        "against": figure.against,
        "unit": figure.unit,
        "goal": {"least": figure.goal.least, "most": figure.goal.most},
        "rounds": [{"ours": one.ours, "against": one.against, "ratio": one.ratio} for one in figure.rounds],
        "median": {"ours": median_ours(figure), "against": median_against(figure)},
        "ratio": {"median": figure.ratio, "least": min(figure.ratios), "greatest": max(figure.ratios)},
        "is_met": figure.is_met,
        "details": dict(figure.details),
    }


def figure_from_json(given: Mapping[str, Any]) -> Figure:
    return Figure(
        work=given["work"],
        ours=given["ours"],
        against=given["against"],
        unit=given["unit"],
        goal=Goal(**given["goal"]),
        rounds=tuple(Round(one["ours"], one["against"]) for one in given["rounds"]),
        details=given["details"],
    )


def median_ours(figure: Figure) -> float:
    return statistics.median(one.ours for one in figure.rounds)


def median_against(figure: Figure) -> float:
    return statistics.median(one.against for one in figure.rounds)


def _json(results: Results) -> str:
    works = {name: _work_as_json(work) for name, work in results.works.items()}
    given = {"date": results.date, "machine": dict(results.machine), "works": works}
    return json.dumps(given, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _work_as_json(work: Measured) -> dict[str, Any]:
    figures = [figure_as_json(figure) for figure in work.figures]
    head = {"rounds": work.rounds, "scale": work.scale, "commit": work.commit, "error": work.error}
    return {**head, "figures": figures}


def _measured(given: Mapping[str, Any]) -> Measured:
    figures = tuple(figure_from_json(figure) for figure in given["figures"])
    return Measured(**{name: given[name] for name in ("rounds", "scale", "commit", "error")}, figures=figures)
