"""``logtwin report --serve`` as a process of its own, of a small replica whose reports need no Spark."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import RunFile
from sinks.tables import LEDGER, LOG
from tests.pipeline.job_toml import job_toml
from tests.pipeline.test_run_state import run_of
from tests.sinks.views.lake import write
from tests.sinks.views.made_topics import ranges_of

LOG_ID = "rocketmq/test"
PROJECT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Served:
    """The page's address, and the job that it tells of."""

    url: str
    process: subprocess.Popen[str]
    lake: Path

    def job_says(self, phase: Phase, **facts: Any) -> None:
        said = run_of(phase=phase, age_s=0, now=datetime.now(UTC), log_id=LOG_ID, **facts)
        RunFile(str(self.lake), "job").write(said)

    def ends(self) -> tuple[int, str]:
        """By SIGTERM: its exit code, and what it said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Of a log whose master nobody reaches."""
    lake = folder / "lake"
    job = job_toml(folder, {"id": LOG_ID, "master": "127.0.0.1:1", "remoting": "127.0.0.1:1"})
    times = dict.fromkeys(("first_store_timestamp", "last_store_timestamp", "committed_at"), datetime.now(UTC))
    write(lake, LOG, [])
    write(lake, LEDGER, [ranges_of(LOG_ID, (0, 9), **times)[0]])
    command = [sys.executable, "-m", "pipeline", "report", "--config", str(job), "--serve"]
    environment = os.environ | {"JAVA_HOME": "/nowhere", "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Served(process.stdout.readline().strip(), process, lake)
        finally:
            process.kill()
