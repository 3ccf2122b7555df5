"""However and whenever a job is told to end: its exit code, its last line, and that nothing of it is left."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipeline.monitoring.run_state import runs_of
from tests.patience import PATIENCE_S, eventually, wait_until
from tests.pipeline.job_toml import SMALL, job_toml
from tests.pipeline.standalone import PROJECT
from tests.truth import Fixture

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOMENTS_S = [30 * at / 19 for at in range(20)]


def left_of(job: Path) -> list[psutil.Process]:
    """Whatever the job has started has its environment."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE and one.environ().get("LOGTWIN_CONFIG") == str(job):
                found.append(one)
    return found


def heeds_signals(process: int) -> bool:
    """Whether it is past our first lines; before, the signal itself ends it, or an error of Python's own."""
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text())
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def check_end(
    job: Path,
    number: signal.Signals,
    *,
    to_group: bool,
    after_s: float = PATIENCE_S,
    until: str | None = None,
    then: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start the job, and signal it after that time, or once a command line of it or its log says `until`, and `then`
    has been called.
    """
    said, command = job.with_name("said"), [sys.executable, "-m", "pipeline", "replicate"]
    environment = {**os.environ, **(environment or {}), "LOGTWIN_CONFIG": str(job)}
    with said.open("w") as file:
        process = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=file, stderr=file, start_new_session=True
        )

    def is_so_far() -> bool:
        if until is None:
            return False
        with suppress(psutil.Error):
            return until in said.read_text() or any(until in " ".join(one.cmdline()) for one in left_of(job))
        return False

    try:
        eventually(is_so_far, after_s, look_every_s=0.2)
        then()
        is_ours = heeds_signals(process.pid)
        (os.killpg if to_group else os.kill)(process.pid, number)
        code, text = process.wait(PATIENCE_S), said.read_text()
        wait_until(lambda: left_of(job) == [], lambda: f"the end of {left_of(job)}", 20, look_every_s=0.2)
    finally:
        for one in left_of(job):
            one.kill()
    last = "".join(text.splitlines()[-1:])
    if not is_ours:
        return
    if code == 0:
        assert last.startswith("rocketmq/test: stopped at offset"), text
        assert all(run.has_ended for run in runs_of(str(job.with_name("lake"))))
    else:
        assert (code, last.endswith(f"ended by {number.name}")) == (128 + number, True), text
    assert "Traceback" not in text, text


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_it_ends_while_spark_starts_and_between_two_batches(tmp_path: Path, fixture_550: Fixture) -> None:
    """The first is Ctrl-C at the worst moment: Spark's JVM is there, and has not met us yet."""
    job = job_toml(tmp_path, {"path": fixture_550.commitlog_path}, spark=SMALL)
    check_end(job, signal.SIGINT, to_group=True, until="org.apache.spark.deploy.SparkSubmit")
    check_end(job, signal.SIGTERM, to_group=True, until="rocketmq/test: running")


@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("share", [pytest.param(2, marks=pytest.mark.nightly), pytest.param(1, marks=pytest.mark.soak)])
def test_it_ends_at_every_moment_again_and_again(tmp_path: Path, fixture_550: Fixture, share: int) -> None:
    """A job for each signal and target, side by side, each on what the one before it left.

    With a share of 2 each signal, and each target, comes at each moment; else each signal to each target, twice.
    """
    moments_s = MOMENTS_S if share == 2 else [at_s for at_s in MOMENTS_S for _ in range(2)]
    failed = list[str]()

    def lane(place: int) -> None:
        number, to_group = SIGNALS[place // 2], place % 2 == 1
        folder = tmp_path / f"{number.name}-{place % 2}"
        folder.mkdir()
        config = job_toml(folder, {"path": fixture_550.commitlog_path}, spark=SMALL)
        for moment_s in moments_s[(place // 2 + place) % share :: share]:
            try:
                check_end(config, number, to_group=to_group, after_s=moment_s)
            except AssertionError as error:
                failed.append(f"{folder.name} after {moment_s:.1f} s: {error}")

    with ThreadPoolExecutor(2 * len(SIGNALS)) as pool:
        list(pool.map(lane, range(2 * len(SIGNALS))))
    assert not failed, "\n".join(failed)
