"""However and whenever a job is told to end: its exit code, its last line, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipeline.monitoring.run_file import runs_of
from tests.patience import PATIENCE_S, eventually, wait_until
from tests.pipeline.standalone import PROJECT
from tests.truth import Fixture

_MARK = "LOGTWIN_TEST_OF_ENDS"
_EARLY_S = 0.5  # a Python that is not yet at our first import
MOMENTS_S = [30 * at / 19 for at in range(20)]


def marked(mark: str) -> list[psutil.Process]:
    """Whatever the job has started has its environment."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE and one.environ().get(_MARK) == mark:
                found.append(one)
    return found


def check_end(job: Path, number: signal.Signals, *, to_group: bool, after_s: float, until: str | None = None) -> None:
    """Start the job; signal it after that time, or once a command line of it or its log says `until`."""
    mark = uuid.uuid4().hex
    said = job.with_name("said")
    command = [sys.executable, "-m", "pipeline", "replicate", "--config", str(job)]
    with said.open("w") as file:
        process = subprocess.Popen(
            command, cwd=PROJECT, env=os.environ | {_MARK: mark}, stdout=file, stderr=file, start_new_session=True
        )

    def is_there() -> bool:
        words = "".join(" ".join(one.cmdline()) for one in marked(mark) if one.is_running())
        return until is not None and (until in words or until in said.read_text())

    try:
        eventually(is_there, after_s if until is None else PATIENCE_S)
        (os.killpg if to_group else os.kill)(process.pid, number)
        code = process.wait(PATIENCE_S)
        text = said.read_text()
        wait_until(lambda: marked(mark) == [], lambda: f"the end of {marked(mark)}", 20)
    finally:
        process.kill()
        for one in marked(mark):
            one.kill()
    assert "Traceback" not in text or code < 0, text[-3000:]
    if code == 0:
        assert text.splitlines()[-1].startswith("rocketmq/test: stopped at offset")
        assert all(run.has_ended for run in runs_of(str(job.with_name("lake"))))
    elif code > 0 or after_s > _EARLY_S:
        assert code == 128 + number
        assert text.splitlines()[-1].endswith(f"ended by {number.name}")
    else:
        assert code == -number


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
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_at_every_moment_twice_in_a_row(job: Path, number: signal.Signals, to_group: bool) -> None:
    for moment_s in MOMENTS_S:
        for _ in range(2):
            check_end(job, number, to_group=to_group, after_s=moment_s)
