"""How much memory a process and its children hold."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

PROJECT = Path(__file__).parents[1]
MIB = 1024 * 1024


@dataclass(frozen=True)
class Peak:
    """Peaks over a run, in MiB. Python: the driver's and all task processes together, at one moment."""

    python_mib: float
    java_mib: float
    seconds: float
    said: str


def _anonymous_mib(process: psutil.Process) -> float:
    """Resident memory that is the process's own. Pages of mapped files belong to the page cache."""
    held = process.memory_info()
    return float(held.rss - held.shared) / MIB


def run_measured(arguments: list[str], *, poll_s: float = 0.2) -> Peak:
    """Run ``python -m pipeline`` with `arguments` to its end; raises AssertionError unless it ends well."""
    import time

    started = time.monotonic()
    command = [sys.executable, "-m", "pipeline", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        python = java = 0.0
        while process.poll() is None:
            held = {"java": 0.0, "python": 0.0}
            for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
                try:
                    held["java" if "java" in one.name() else "python"] += _anonymous_mib(one)
                except psutil.Error:
                    continue  # it ended in between
            python, java = max(python, held["python"]), max(java, held["java"])
            time.sleep(poll_s)
        said = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, said[-3000:]
    return Peak(python, java, time.monotonic() - started, said)
