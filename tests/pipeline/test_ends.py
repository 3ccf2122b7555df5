"""However and whenever a job is told to end: its exit code, its last line, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipeline.monitoring.run_file import runs_of
from tests.patience import PATIENCE_S, eventually, wait_until
from tests.pipeline.standalone import PROJECT
from tests.truth import Fixture

EARLY_S = 0.5  # a Python that is not yet at our first import ends by the signal itself
MOMENTS_S = [30 * at / 19 for at in range(20)]


def left_of(job: Path) -> list[psutil.Process]:
    """Whatever the job has started has its environment."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE and one.environ().get("LOGTWIN_CONFIG") == str(job):
                found.append(one)
    return found


def check_end(job: Path, number: signal.Signals, *, to_group: bool, after_s: float, until: str = "\0") -> None:
    """Start the job, and signal it after that time, or once a command line of it or its log says `until`."""
    said, command = job.with_name("said"), [sys.executable, "-m", "pipeline", "replicate"]
    environment = os.environ | {"LOGTWIN_CONFIG": str(job)}
    with said.open("w") as file:
        process = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=file, stderr=file, start_new_session=True
        )

    def is_so_far() -> bool:
        with suppress(psutil.Error):
            return until in said.read_text() or any(until in " ".join(one.cmdline()) for one in left_of(job))
        return False

    try:
        eventually(is_so_far, after_s, look_every_s=0.2)
        (os.killpg if to_group else os.kill)(process.pid, number)
        code, text = process.wait(PATIENCE_S), said.read_text()
        wait_until(lambda: left_of(job) == [], lambda: f"the end of {left_of(job)}", 20, look_every_s=0.2)
    finally:
        for one in left_of(job):
            one.kill()
    last = "".join(text.splitlines()[-1:])
    if code == 0:
        assert last.startswith("rocketmq/test: stopped at offset"), text
        assert all(run.has_ended for run in runs_of(str(job.with_name("lake"))))
    elif code > 0 or after_s > EARLY_S:
        assert (code, last.endswith(f"ended by {number.name}")) == (128 + number, True), text
    assert code < 0 or "Traceback" not in text, text


@pytest.fixture
def job(tmp_path: Path, fixture_550: Fixture) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(
        f'warehouse = "{tmp_path}/lake"\n[spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "512m"\n'
        f'[[logs]]\nid = "rocketmq/test"\npath = "{fixture_550.commitlog_path}"\n'
    )
    return path


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_it_ends_while_spark_starts_and_between_two_batches(job: Path) -> None:
    """The first is Ctrl-C at the worst moment: Spark's JVM is there, and has not met us yet."""
    check_end(job, signal.SIGINT, to_group=True, after_s=PATIENCE_S, until="org.apache.spark.deploy.SparkSubmit")
    check_end(job, signal.SIGTERM, to_group=True, after_s=PATIENCE_S, until="rocketmq/test: running")


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_at_every_moment_twice_in_a_row(job: Path, number: signal.Signals, to_group: bool) -> None:
    for moment_s in (at_s for at_s in MOMENTS_S for _ in range(2)):
        check_end(job, number, to_group=to_group, after_s=moment_s)
