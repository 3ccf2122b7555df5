"""A driver that is killed: ``python -m tests.pipeline.killed_driver CONFIG STEP`` dies once its second batch did STEP.

STEP is one of the sink's steps (files, commit, acknowledge, ledger). Then the process is gone, as with ``kill -9``: no
handler, no flush, no goodbye to the JVM.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from pipeline.config import configuration
from pipeline.job.replicate import Job
from pipeline.spark.session import session_for
from sinks.batch.proof import BatchStep

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


class DieAtSecond:
    """Called after each step of each batch: dies after `step` of the second batch."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._times = 0

    def __call__(self, done: BatchStep) -> None:
        self._times += done.name.lower() == self._step
        if self._times == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def main(config_file: str, step: str) -> None:
    config = configuration.load(Path(config_file))
    job = Job(session_for(config), config, available_now=True, on_step=DieAtSecond(step))
    job.start()
    job.run()


if __name__ == "__main__":
    BatchStep[sys.argv[2].upper()]  # a typo must not look like a driver that survived
    main(*sys.argv[1:])
