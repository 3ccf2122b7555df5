"""bench.run: a work in a process of its own, however it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.contest import Round
from bench.run import BenchOutcome, run

Ran = Callable[[str], BenchOutcome]

HEAD = """
import os, sys
from pathlib import Path
from bench.contest import Figure, Goal, Round

def figure(work, settings, **details):
    rounds = tuple(Round(settings.scale, 2.0) for _ in range(settings.rounds))
    return Figure(work=work, ours="o", against="a", unit="u", rounds=rounds, goal=Goal(least=1), details=details)

def measure(settings):
    (settings.folder / "left").mkdir()
    Path(__file__).with_name("folder").write_text(str(settings.folder))
    yield figure("first", settings, process=os.getpid())
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Ran:
    """Runs a work that goes on, after its first figure, with the given lines."""
    name = f"work_{request.node.name.split('[')[0]}"
    monkeypatch.syspath_prepend(tmp_path)  # a new process gets our path

    def _ran(lines: str) -> BenchOutcome:
        (tmp_path / f"{name}.py").write_text(f"{HEAD}    {lines}\n")
        return run(name, rounds=2, scale=0.5)

    return _ran


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("pass", None),
        ('raise SystemExit("rows are missing")', "SystemExit: rows are missing"),
        ("raise OSError(28, 'no space')", "OSError: [Errno 28] no space"),
        ("import bench.no_such_module", "ModuleNotFoundError: No module named 'bench.no_such_module'"),
        ('yield figure("not JSON", settings, folder=settings.folder)', "TypeError: Object of type PosixPath"),
        ("os.kill(os.getpid(), 9)", "its process ended with exit code -9"),
    ],
)
def test_figures_come_over_from_another_process_also_before_a_failure(
    ran: Ran, tmp_path: Path, lines: str, error: str | None
) -> None:
    outcome = ran(lines)
    [figure] = outcome.figures
    assert figure.rounds == (Round(0.5, 2.0), Round(0.5, 2.0))
    assert figure.details["process"] != os.getpid()
    assert outcome.error == error if error is None else (outcome.error or "").startswith(error)
    assert not Path((tmp_path / "folder").read_text()).exists()  # that the work was given
