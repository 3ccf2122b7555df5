"""A driver that is killed: ``python -m tests.pipeline.killed_driver CONFIG STEP`` dies once its second batch did STEP.

STEP is one of the sink's steps (files, commit, acknowledge, ledger), or, of a topic, checkpoint: Spark's own mark that
a batch is done. Then the process is gone, as with ``kill -9``: no handler, no flush, no goodbye to the JVM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from pipeline import config as configuration
from pipeline.replicate import Job
from pipeline.session import build_session
from sinks.steps import Step

CHECKPOINT = "checkpoint"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_when_marked(commits: Path, waiting: threading.Event) -> None:
    before = marks(commits)
    while len(marks(commits) - before) < 2:
        waiting.wait(0.005)
    die()


def marks(commits: Path) -> set[str]:
    return {path.name for path in commits.glob("[0-9]*")}


class DieAtSecond:
    """Called after each step of each batch: dies after `step` of the second batch."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._times = 0

    def __call__(self, done: Step) -> None:
        self._times += done.name.lower() == self._step
        if self._times == 2:
            die()


def main(config_file: str, step: str) -> None:
    config = configuration.load(Path(config_file))
    if step == CHECKPOINT:
        (replicated,) = config.asked_topics()
        commits = Path(config.checkpoint_root) / replicated.id / "commits"
        threading.Thread(target=die_when_marked, args=(commits, threading.Event()), daemon=True).start()
    job = Job(
        build_session(config.spark),
        config,
        available_now=True,
        on_step=DieAtSecond(step),
    )
    job.start()
    job.run()


if __name__ == "__main__":
    if sys.argv[2] != CHECKPOINT:
        Step[sys.argv[2].upper()]  # a typo must not look like a driver that survived
    main(*sys.argv[1:])
