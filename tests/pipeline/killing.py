"""Drivers that are killed at a step of their second batch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

STEPS = ("files", "commit", "acknowledge", "ledger")
_PROJECT = Path(__file__).parents[2]


def kill_after(step: str, job: Path) -> None:
    """Run a driver in a process group of its own until it kills itself; end whatever it leaves."""
    command = [sys.executable, "-m", "tests.pipeline.killed_driver", str(job), step]
    driver = subprocess.Popen(command, cwd=_PROJECT, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        _, said = driver.communicate(timeout=240)
        assert driver.returncode == -signal.SIGKILL, said[-3000:]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)  # the JVM, should it not have noticed yet
