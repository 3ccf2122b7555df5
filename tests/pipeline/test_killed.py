"""``kill -9`` of the driver after each step of a batch: a restart gives exactly one copy of everything.

The driver that dies is a process of its own, with Spark; the job that goes on runs in this process, without.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, load
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import runs_of
from sinks.state.log_table import LogTable
from sources.offsets import LogId
from tests.patience import PATIENCE_S, wait_until
from tests.pipeline.job_toml import SMALL, job_toml
from tests.pipeline.killed_driver import STEPS, kill_after
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.read_back import assert_whole, count_of, table_of
from tests.pipeline.running import own_cache, replicate_now
from tests.truth import Fixture

pytestmark = pytest.mark.timeout(600)

IS_COMMITTED = {"files": False, "commit": True, "acknowledge": True, "ledger": True}
ALWAYS = ("commit",)  # a start takes a quarter of a minute. Each step within one process: tests/sinks/test_replica.py
HAS_LEDGER = {"files": False, "commit": False, "acknowledge": False, "ledger": True}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, fixture_550: Fixture) -> Iterator[Served]:
    with embedded_master(tmp_path_factory.mktemp("master"), commitlog=fixture_550.commitlog_path) as master:
        yield master


def position(session: SparkSession, config: Config) -> int:
    state = LogTable(session, f"{config.warehouse}/log", LogId.parse("rocketmq/test")).read().state
    return 0 if state is None or state.offset is None else state.offset


@contextmanager
def sockets_that_go_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, monkeypatch.context() as inside:
        inside.setenv("TMPDIR", short)
        yield
        assert set(Path(short).rglob("*.sock"))
        again = "from pipeline.system.folders import process_folder; process_folder()"

        def are_gone() -> bool:
            subprocess.run([sys.executable, "-c", again], check=True)
            return not set(Path(short).rglob("*.sock"))

        # a daemon of Python lives until it has noticed that its JVM is gone
        wait_until(are_gone, "what a killed driver leaves to go at a start", look_every_s=0.5)


@pytest.mark.spark
@pytest.mark.parametrize("session", ["plain"], indirect=True)
@pytest.mark.parametrize(
    "step", [step if step in ALWAYS else pytest.param(step, marks=pytest.mark.nightly) for step in STEPS]
)
def test_a_restart_gives_exactly_one_copy(
    session: SparkSession,
    master: Served,
    fixture_550: Fixture,
    tmp_path: Path,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = job_toml(tmp_path, {**master.options, "max_bytes_per_trigger": 1_000_000}, spark=SMALL)
    with master.watched() as acknowledged, sockets_that_go_at_the_next_start(monkeypatch):
        kill_after(step, job)
    config = load(job)
    lake = Path(config.warehouse)

    # what it said last, a moment ago: that it runs. Nobody has to wait until that is old
    (run,) = runs_of(config.warehouse)
    assert run.logs["rocketmq/test"]["phase"] == Phase.RUNNING
    assert not run.is_live(run.updated_at)

    # what the dead driver left: all of its second batch or nothing of it
    reached = position(session, config)
    assert 1_000_000 <= reached < 3_000_000
    assert (reached >= 2_000_000) == IS_COMMITTED[step]
    assert max(table_of(lake, "log")["offset"].to_pylist()) < reached
    assert count_of(lake, "ledger") == (2 if HAS_LEDGER[step] else 1)
    assert 1_000_000 <= max(acknowledged) <= reached

    assert not (lake / "_checkpoints").exists()  # what the query kept for itself died with its process
    replicate_now(session, config)
    assert_whole(lake, fixture_550.log)


@pytest.mark.spark
@pytest.mark.nightly
def test_the_last_line_of_a_job_whose_jvm_is_killed_is_a_named_error(fixture_550: Fixture, tmp_path: Path) -> None:
    """And only its owner may read what the JVM has said."""
    cache = own_cache(tmp_path)
    (cache / "spark.log").touch(mode=0o644)
    job = job_toml(tmp_path, {"path": fixture_550.commitlog_path})
    command = [sys.executable, "-m", "pipeline", "replicate", "--config", str(job)]
    environment = os.environ | {"LOGTWIN_CACHE": str(cache)}
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "running" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            os.kill(java_of(process.pid), signal.SIGKILL)
            said += process.stderr.read()
            assert process.wait(PATIENCE_S) in (5, 6), said
        finally:
            process.kill()
    assert " ERROR    " in said.splitlines()[-1], said
    assert oct((cache / "spark.log").stat().st_mode & 0o777) == oct(0o600)


def java_of(process: int) -> int:
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                return child
    raise AssertionError("there is no Java")
