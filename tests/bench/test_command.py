"""``python -m bench``: which works are run, what stays of them, and the exit code."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from bench import __main__ as command
from bench.results import read_results
from bench.run import BenchOutcome
from tests.bench.test_results import figure

IN_ORDER = [work.value for work in command.Work]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, float]]:
    """Every work that was run, with its rounds and scale; that of memory fails after its first figure."""
    done: list[tuple[str, int, float]] = []

    def run(module: str, *, rounds: int, scale: float) -> BenchOutcome:
        done.append((module, rounds, scale))
        figures = (figure(module, float(rounds)),)
        return BenchOutcome(figures, "OSError: no space" if module == "bench.memory" else None)

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "machine", lambda: {"cores": 2})
    drawing = SimpleNamespace(svg=lambda figures: "a picture, which takes a second")
    monkeypatch.setitem(sys.modules, "bench.plot", drawing)
    return done


def bench(folder: Path, *arguments: str) -> int:
    return CliRunner().invoke(command.app, ["--results", str(folder), *arguments]).exit_code


def test_all_are_run_in_order_and_one_that_fails_loses_no_other(
    ran: list[tuple[str, int, float]], tmp_path: Path
) -> None:
    assert bench(tmp_path) == 1
    assert [name for name in IN_ORDER if find_spec(f"bench.{name}") is None] == []
    assert ran == [(f"bench.{name}", 5, 1.0) for name in IN_ORDER]
    works = read_results(tmp_path / f"{datetime.now(UTC).date().isoformat()}.json").works
    assert list(works) == IN_ORDER
    assert {name: work.error for name, work in works.items() if work.error} == {"memory": "OSError: no space"}
