"""bench.run: a work in a process of its own, however it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from bench.contest import Round
from bench.run import BenchOutcome, run
from tests.patience import wait_until

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


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], Path]:
    """The folder that the work was given."""
    return lambda: Path((tmp_path / "folder").read_text())


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
    ran: Ran, folder: Callable[[], Path], lines: str, error: str | None
) -> None:
    outcome = ran(lines)
    [figure] = outcome.figures
    assert figure.rounds == (Round(0.5, 2.0), Round(0.5, 2.0))
    assert figure.details["process"] != os.getpid()
    assert outcome.error == error if error is None else (outcome.error or "").startswith(error)
    assert not folder().exists()


def test_a_work_that_is_asked_to_end_leaves_nothing(tmp_path: Path, folder: Callable[[], Path]) -> None:
    lines = f"""
    import subprocess, time
    server = subprocess.Popen(["sleep", "600"])
    try:
        Path({str(tmp_path)!r}, "server").write_text(f"{{server.pid}}")
        time.sleep(600)
    finally:
        server.kill()
        server.wait()
"""
    (tmp_path / "work_to_be_ended.py").write_text(HEAD + lines)
    call = "from bench.run import run; run('work_to_be_ended', rounds=1, scale=1.0)"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    started = psutil.Popen([sys.executable, "-c", call], env={**os.environ, "PYTHONPATH": path})
    running: list[psutil.Process] = []
    try:
        server = tmp_path / "server"
        wait_until(lambda: server.exists() and server.read_text() != "", "the work's own server")
        running = started.children(recursive=True)
        assert int(server.read_text()) in [one.pid for one in running]
        assert folder().exists()
        started.terminate()
        assert started.wait(30) == 128 + signal.SIGTERM
        _, alive = psutil.wait_procs(running, timeout=10)
        assert not alive
    finally:
        for one in (started, *running):
            with suppress(psutil.NoSuchProcess):
                one.kill()
    assert not folder().exists()
